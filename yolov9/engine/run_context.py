"""What a run is: its settings with every gap filled, recipe, folder, device and place among the ranks."""

from dataclasses import dataclass, replace
from pathlib import Path

from yolov9.config.environment import Environment
from yolov9.config.recipe import Recipe
from yolov9.config.settings import TrainSettings
from yolov9.config.stages import Growth, Stage, parse_growth, parse_stages
from yolov9.engine.distributed import Ranks
from yolov9.engine.precision import Precision
from yolov9.engine.schedule import rounded_accumulation
from yolov9.errors import UserError

DEFAULT_BATCH = 16
"""Pictures per forward pass when nobody planned it."""
DEFAULT_WORKERS = 1
"""Loader processes when nobody planned their number."""


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Read by every part of a run, changed by none."""

    settings: TrainSettings
    """With a batch size and a number of workers."""
    recipe: Recipe
    run_dir: Path
    precision: Precision
    ranks: Ranks
    environment: Environment
    data_copy: str = ""
    """data.yaml of a copy on faster storage to read in place of the data set; "" for none."""

    @property
    def batch(self) -> int:
        """Pictures per forward pass of one rank."""
        assert self.settings.batch_size is not None, "with_defaults fills it"
        return self.settings.batch_size

    @property
    def accumulation_target(self) -> float:
        """Loaded batches per optimizer step after warm-up, or at the end of their growth; not rounded yet."""
        settings = self.settings
        if self.growth is not None:
            return float(self.growth.end)
        if settings.accumulate is not None:
            return float(settings.accumulate)
        return settings.optimisation_batch / (self.batch * self.ranks.world)

    @property
    def draws_on_device(self) -> bool:
        """Training pictures are decoded and drawn on the device; a plan has made `gpu` of `auto` where it pays."""
        return self.settings.decode == "gpu"

    @property
    def growth(self) -> Growth | None:
        """How the batches of a step grow with `--dynamic-accumulate`."""
        return parse_growth(self.settings.dynamic_accumulate, self.settings.epochs)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Picture sizes of `--stages`; empty without."""
        return parse_stages(self.settings.stages)

    @property
    def pictures_per_step(self) -> int:
        """Pictures per optimizer step after warm-up."""
        return self.batch * self.ranks.world * rounded_accumulation(self.accumulation_target)

    @property
    def weights_dir(self) -> Path:
        """Folder of the checkpoints."""
        return self.run_dir / "weights"


def with_defaults(settings: TrainSettings) -> TrainSettings:
    """Returns the settings with a batch size and a number of workers; a plan has usually chosen both before.

    Raises:
        UserError: a number that cannot be meant.
    """
    for name, value, least in (
        ("--epochs", settings.epochs, 1),
        ("--accumulate", settings.accumulate, 1),
        ("--optimisation-batch", settings.optimisation_batch, 1),
        ("--close-mosaic", settings.close_mosaic, 0),
        ("--patience", settings.patience, 0),
    ):
        if value is not None and value < least:
            raise UserError(found=f"{name} {value}", needed=f"{least} or more", remedy=f"{name} {least}")
    batch = settings.batch_size
    return replace(
        settings,
        imgsz=max((stage.imgsz for stage in parse_stages(settings.stages)), default=settings.imgsz),
        batch_size=DEFAULT_BATCH if batch is None or batch < 1 else batch,
        workers=DEFAULT_WORKERS if settings.workers is None else max(0, settings.workers),
    )
