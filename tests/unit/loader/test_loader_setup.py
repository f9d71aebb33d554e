"""What a training run asks of its loaders."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from yolov9.config.environment import read_environment
from yolov9.config.recipe import Recipe
from yolov9.config.settings import TrainSettings
from yolov9.config.small_data import MOSAIC_WINDOW, MOST_PICTURES, mosaic_window
from yolov9.data.cache import plan_cache
from yolov9.data.summary import DatasetSummary
from yolov9.engine.distributed import Ranks
from yolov9.engine.loader_setup import train_loader_settings, val_loader_settings
from yolov9.engine.precision import choose_precision
from yolov9.engine.run_context import RunContext, with_defaults


@pytest.fixture
def context(tmp_path):
    """Function: context of a run on the CPU with these settings."""

    def make(**settings):
        return RunContext(
            settings=with_defaults(TrainSettings(imgsz=96, **settings)),
            recipe=Recipe(),
            run_dir=Path(tmp_path),
            precision=choose_precision("off", torch.device("cpu")),
            ranks=Ranks(),
            environment=read_environment(),
        )

    return make


def test_options_reach_the_loaders(context, boxes_index):
    run = context(mosaic_window=9, worker_timeout_s=3.5, workers=2)
    train = train_loader_settings(run, boxes_index)
    assert (train.mosaic_window, train.timeout_s, train.workers, train.cache_limit_bytes) == (9, 3.5, 2, None)
    assert val_loader_settings(run, boxes_index, boxes_index).timeout_s == 3.5


def test_partners_come_from_all_pictures_of_a_small_data_set(context, boxes_index):
    assert len(boxes_index) <= MOST_PICTURES
    assert train_loader_settings(context(), boxes_index).mosaic_window == 0


def test_a_data_set_of_which_few_pictures_are_used_is_not_small(context, boxes_index):
    """The plan has counted files, and keeps none of them in memory."""
    summary = DatasetSummary(split="train", used=len(boxes_index), left_out={"fewer than 2 objects": MOST_PICTURES})
    assert train_loader_settings(context(), replace(boxes_index, summary=summary)).mosaic_window == MOSAIC_WINDOW


@pytest.mark.parametrize(
    ("asked", "pictures", "window"), [(None, 1000, 0), (None, 1001, 128), (None, None, 128), (9, 10, 9), (0, 10**6, 0)]
)
def test_the_mosaic_window_follows_the_data_set_unless_it_is_given(asked, pictures, window):
    assert mosaic_window(asked, pictures) == window


@pytest.mark.parametrize("limit_bytes", [10_000, 150_000, 400_000, 10_000_000])
def test_both_caches_together_keep_to_the_limit(context, boxes_index, limit_bytes):
    run = context(cache="ram", cache_limit_gb=limit_bytes / 1e9)
    train = train_loader_settings(run, boxes_index)
    val = val_loader_settings(run, boxes_index, boxes_index)
    assert train.cache_limit_bytes == limit_bytes
    assert val.cache_limit_bytes is not None
    kept = [plan_cache(boxes_index.sizes, 96, settings.cache_limit_bytes)[0] for settings in (train, val)]
    pixels = [layout.total_bytes if layout.kept else 0 for layout in kept]
    assert sum(pixels) <= limit_bytes
    assert kept[0].kept >= kept[1].kept
