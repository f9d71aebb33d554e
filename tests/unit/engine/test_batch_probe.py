"""What the measured step is made of."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from yolov9.config.environment import Environment
from yolov9.config.recipe import Recipe
from yolov9.config.settings import TrainSettings
from yolov9.data import DatasetIndex, load_dataset_config
from yolov9.engine.batch_probe import most_boxes, of_one_rank
from yolov9.engine.distributed import Ranks
from yolov9.engine.precision import choose_precision
from yolov9.engine.run_context import RunContext


@pytest.fixture
def crowded(tmp_path: Path) -> DatasetIndex:
    """Ten pictures: one with 30 objects, one with 5, the rest with one."""
    for kind in ("images", "labels"):
        (tmp_path / kind).mkdir()
    for number in range(10):
        cv2.imwrite(str(tmp_path / "images" / f"{number}.png"), np.zeros((32, 32, 3), np.uint8))
        boxes = [f"0 {x} 0.5 0.01 0.2\n" for x in np.linspace(0.1, 0.9, {0: 30, 1: 5}.get(number, 1))]
        (tmp_path / "labels" / f"{number}.txt").write_text("".join(boxes))
    (tmp_path / "data.yaml").write_text("train: images\nval: images\nnames: [thing]\n")
    return DatasetIndex.build(load_dataset_config(str(tmp_path / "data.yaml")), "train", cache_dir=None)


@pytest.mark.parametrize(
    ("recipe", "rect", "boxes"),
    [
        (Recipe(mosaic=1.0, mixup=0.15, copy_paste=0.0), False, 30 + 5 + 6),
        (Recipe(mosaic=1.0, mixup=0.0, copy_paste=0.0), False, 30 + 5 + 2),
        (Recipe(mosaic=1.0, mixup=0.0, copy_paste=0.3), False, 2 * (30 + 5 + 2)),
        (Recipe(mosaic=1.0, mixup=0.15, copy_paste=0.0), True, 30),
    ],
)
def test_p11_the_measured_step_has_the_boxes_of_the_most_crowded_sample(
    crowded: DatasetIndex, recipe: Recipe, rect: bool, boxes: int
) -> None:
    assert most_boxes(crowded, TrainSettings(rect=rect), recipe) == boxes


@pytest.mark.parametrize(("sync_bn", "world", "plain"), [(True, 2, True), (True, 1, False), (False, 2, False)])
def test_the_measured_step_meets_no_other_rank(tmp_path: Path, sync_bn: bool, world: int, plain: bool) -> None:
    context = RunContext(
        settings=TrainSettings(sync_bn=sync_bn),
        recipe=Recipe(),
        run_dir=tmp_path,
        precision=choose_precision("off", torch.device("cpu")),
        ranks=Ranks(rank=0, world=world),
        environment=Environment(),
    )
    assert of_one_rank(context).settings.plain_step is plain
