"""Pictures and labels of one split, as the options of a command want them."""

from yolov9.config.environment import Environment
from yolov9.config.settings import TrainSettings, ValSettings
from yolov9.data import DatasetConfig, DatasetIndex
from yolov9.read_watch import READ_TIMEOUT_S, ReadWatch


def read_split(
    settings: TrainSettings | ValSettings,
    config: DatasetConfig,
    split: str,
    environment: Environment,
    *,
    min_items: int | None = None,
) -> DatasetIndex:
    """Reads a split of a data set.

    Args:
        settings: what is left out, and how many files are looked at side by side.
        config: the data set.
        split: train, val or test.
        environment: where results of looking at pictures are kept.
        min_items: in place of that of the settings.

    Raises:
        DataError: the split cannot be used.
    """
    timeout_s = settings.worker_timeout_s if isinstance(settings, TrainSettings) else READ_TIMEOUT_S
    with ReadWatch(timeout_s):
        return DatasetIndex.build(
            config,
            split,
            cache_dir=environment.cache_dir,
            single_cls=settings.single_cls,
            min_items=settings.min_items if min_items is None else min_items,
            workers=max(1, settings.workers or 1),
            allow_bad_labels=settings.allow_bad_labels,
        )
