"""Targets for steps that are run to be measured."""

import torch

from yolov9.engine.random_targets import random_rows


def test_each_picture_has_its_boxes_and_all_lie_in_it() -> None:
    rows = random_rows(3, 50, 7, torch.Generator().manual_seed(0))
    assert torch.bincount(rows[:, 0].long()).tolist() == [50, 50, 50]
    assert rows[:, 1].unique().tolist() == list(range(7))
    centre, size = rows[:, 2:4], rows[:, 4:6]
    assert bool((size > 0).all())
    assert bool((centre - size / 2 > 0).all())
    assert bool((centre + size / 2 < 1).all())
