"""Decoding on the device, and what becomes of pictures that its decoder refuses."""

import cv2
import numpy as np
import pytest
import torch

from yolov9.data.images import shrink
from yolov9.engine.jpeg_decoder import JpegDecoder, UndecodableError, shrink_planes

CPU = torch.device("cpu")


def encoded(level):
    return torch.from_numpy(cv2.imencode(".jpg", np.full((48, 64, 3), level, np.uint8))[1].ravel())


def as_png(level):
    return torch.from_numpy(cv2.imencode(".png", np.full((48, 64, 3), (level, 0, 255), np.uint8))[1].ravel())


def test_pictures_come_as_planes_of_red_green_and_blue():
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[..., 2] = 255
    file = torch.from_numpy(cv2.imencode(".jpg", picture)[1].ravel())
    decoded = JpegDecoder(CPU)({7: file})[7]
    assert decoded.shape == (3, 48, 64)
    assert decoded.float().mean(dim=(1, 2)).tolist() == pytest.approx([255, 0, 0], abs=3)


def test_what_the_device_refuses_is_decoded_on_the_cpu_also_the_next_time(caplog):
    """The decoder of the device knows no PNG."""
    caplog.set_level("INFO")
    decoder, files = JpegDecoder(CPU), {1: encoded(10), 2: as_png(77), 3: encoded(200)}
    for _ in range(2):
        decoded = decoder(files)
        means = {number: picture.float().mean(dim=(1, 2)).round().tolist() for number, picture in decoded.items()}
        assert means == {1: [10] * 3, 2: [255, 0, 77], 3: [200] * 3}
    assert sum("decoded on the CPU" in message for message in caplog.messages) == 1


def test_what_nobody_can_decode_is_named_by_its_number():
    with pytest.raises(UndecodableError) as error:
        JpegDecoder(CPU)({1: encoded(10), 2: torch.zeros(100, dtype=torch.uint8)})
    assert error.value.picture == 2


@pytest.mark.parametrize("size_hw", [(64, 96), (37, 51), (9, 8)])
@pytest.mark.parametrize("reduction", [1, 2, 4, 8])
def test_shrinking_is_that_of_the_loader(size_hw, reduction):
    picture = np.random.default_rng(0).integers(0, 256, (*size_hw, 3), np.uint8)
    ours = shrink_planes(torch.from_numpy(picture).permute(2, 0, 1), reduction).permute(1, 2, 0)
    theirs = torch.from_numpy(shrink(picture, reduction).copy())
    assert ours.shape == theirs.shape
    # At an edge that is repeated, halving again and again gives it another weight.
    whole = slice(size_hw[0] // reduction), slice(size_hw[1] // reduction)
    assert (ours[whole].int() - theirs[whole].int()).abs().max() <= 2
