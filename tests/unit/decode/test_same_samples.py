"""Samples drawn on the device are those of the loader's workers: same objects, nearly the same pixels."""

import contextlib
import os
import signal
from dataclasses import replace

import pytest
import torch

from yolov9.config.recipe import Recipe
from yolov9.data.drawing import NO_MASK
from yolov9.data.loader import Loader, open_loader

RECIPES = {
    "scratch-high": Recipe(),
    "one picture": replace(Recipe(), mosaic=0.0),
    "blended": replace(Recipe(), mixup=1.0),
    "pasted": replace(Recipe(), copy_paste=1.0),
    "turned": replace(Recipe(), degrees=25.0, shear=6.0, flipud=0.5, mixup=0.5, copy_paste=1.0),
    "often out of view": replace(Recipe(), mosaic=0.0, translate=2.0),
    "perspective": replace(Recipe(), perspective=0.0008, degrees=10.0),
}
MOST_LEVELS = {160: 1.0, 96: 2.5}
"""Mean difference of a sample, by training size: OpenCV resizes with borders up to 1/8 pixel off, and colours change
before a picture is enlarged; at a reduced scale libjpeg computes fewer frequencies where the device averages."""


@pytest.mark.parametrize("imgsz", MOST_LEVELS)
@pytest.mark.parametrize("name", RECIPES)
def test_pictures_and_labels_are_those_of_the_workers(settings, painted, drawn, name, imgsz):
    """At 96 px the pictures are more than twice as long as the training size, so they are shrunk when decoded."""
    chosen = settings(recipe=RECIPES[name], imgsz=imgsz)
    for ours, theirs in zip(painted(chosen), drawn(chosen), strict=True):
        assert ours[2] == theirs[2]
        assert torch.equal(ours[1], theirs[1])
        differences = (ours[0] - theirs[0]).abs().mean(dim=(1, 2, 3))
        assert differences.max() < MOST_LEVELS[imgsz], differences


def test_pasted_objects_are_there(settings):
    """Without a mask in any sample, the comparison of pasted ones would show nothing."""
    with open_loader(settings(recipe=RECIPES["pasted"])) as loader:
        records = next(loader.epoch(0)).drawings.records()
    assert (records["scene"]["mask"][:, 0] != NO_MASK).any()


def test_rectangular_batches_are_drawn_in_their_shape(settings, painted, drawn):
    chosen = settings(rect=True)
    for ours, theirs in zip(painted(chosen), drawn(chosen), strict=True):
        assert ours[0].shape == theirs[0].shape
        assert (ours[0] - theirs[0]).abs().mean() < MOST_LEVELS[160]


def test_batches_do_not_depend_on_workers_or_on_where_an_epoch_begins(settings, painted):
    alone = painted(settings())
    for other, expected in ((painted(settings(workers=3)), alone), (painted(settings(workers=2), 1), alone[1:])):
        for ours, theirs in zip(other, expected, strict=True):
            assert torch.equal(ours[0], theirs[0])
            assert torch.equal(ours[1], theirs[1])


def test_a_store_too_small_for_a_batch_changes_no_pixel(settings, painted):
    """Samples are then drawn in groups, and pictures that were pushed out are decoded again."""
    chosen = settings(recipe=RECIPES["blended"])
    ample, tight = painted(chosen), painted(chosen, store_bytes=9 * 256 * 256 * 3)
    assert all(torch.equal(a[0], b[0]) for a, b in zip(ample, tight, strict=True))


def test_killed_workers_are_replaced_and_batches_stay_the_same(settings, painted, monkeypatch):
    """Every batch costs a worker its life."""
    expected = painted(settings())
    epoch = Loader.epoch

    def deadly(loader, *place):
        for batch in epoch(loader, *place):
            for pid in loader.worker_pids[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            yield batch

    monkeypatch.setattr(Loader, "epoch", deadly)
    for ours, theirs in zip(painted(settings(workers=2, slots=2)), expected, strict=True):
        assert torch.equal(ours[0], theirs[0])
