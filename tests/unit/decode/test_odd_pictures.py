"""Pictures that a GPU's decoder cannot read, or not as the CPU's does, take the CPU's and are right all the same."""

import io
import re
import struct

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from yolov9.config.recipe import Recipe
from yolov9.data.failures import UnreadablePicturesError
from yolov9.data.jpeg_form import plain_jpeg_hw
from yolov9.data.loader import open_loader

MOST_LEVELS = 2.0
PLAIN_RECIPE = Recipe(mosaic=0.0, mixup=0.0, copy_paste=0.0)


def picture(width=96, height=64):
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    return Image.fromarray(np.stack((2 * x, 3 * y, x + y), axis=-1).astype(np.uint8))


def saved(image, kind="jpeg", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned():
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(picture(), exif=exif)


def in_red_green_blue():
    return saved(picture(), keep_rgb=True)


PLAIN = {
    "4:4:4": saved(picture(), subsampling=0),
    "4:2:2": saved(picture(), subsampling=1),
    "4:2:0": saved(picture(), subsampling=2),
    "with an upright EXIF": saved(picture(), exif=Image.Exif()),
    "padded": saved(picture()) + bytes(100),
}
ODD = {
    "progressive": saved(picture(), progressive=True),
    "grey": saved(picture().convert("L")),
    "CMYK": saved(picture().convert("CMYK")),
    "turned": turned(),
    "red, green, blue": in_red_green_blue(),
    "without end": saved(picture())[:-2],
    "PNG": saved(picture(), "png"),
}


@pytest.mark.parametrize("name", PLAIN)
def test_usual_jpegs_are_left_to_the_device(name):
    assert plain_jpeg_hw(PLAIN[name]) == (64, 96)


@pytest.mark.parametrize("name", ODD)
def test_odd_pictures_are_not(name):
    assert plain_jpeg_hw(ODD[name]) is None


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff", PLAIN["4:2:0"][:100] + b"\xff\xd9", bytes(50)])
def test_broken_headers_are_not(data):
    assert plain_jpeg_hw(data) is None


@pytest.mark.parametrize("name", [*PLAIN, *ODD])
def test_a_data_set_of_such_pictures_is_drawn_alike(own_jpegs, build, settings, painted, drawn, name):
    for path in (own_jpegs / "images" / "train").iterdir():
        path.write_bytes({**PLAIN, **ODD}[name])
    chosen = settings(index=build(own_jpegs), recipe=PLAIN_RECIPE)
    for ours, theirs in zip(painted(chosen), drawn(chosen), strict=True):
        assert torch.equal(ours[1], theirs[1])
        assert (ours[0] - theirs[0]).abs().mean() < MOST_LEVELS


def test_large_files_travel_as_pixels_no_longer_than_the_training_size(own_jpegs, build, settings):
    noise = np.random.default_rng(0).integers(0, 256, (900, 1400, 3), np.uint8)
    path = own_jpegs / "images" / "train" / "0000.jpg"
    cv2.imwrite(str(path), noise, [cv2.IMWRITE_JPEG_QUALITY, 100])
    with open_loader(settings(index=build(own_jpegs), recipe=PLAIN_RECIPE, batch_size=12)) as loader:
        records = next(loader.epoch(0)).drawings.records()
    sources = records["source"][:, 0]
    entry = sources[sources["picture"] == 0][0]
    assert not entry["is_jpeg"]
    assert max(entry["size_hw"]) == 160
    assert sources["is_jpeg"].sum() == len(sources) - 1


def no_decoder_reads(data):
    """The same file with Huffman tables that cannot be, which the header does not show."""
    start = re.search(rb"\xff\xc4", data).start()
    (length,) = struct.unpack_from(">H", data, start + 2)
    return data[: start + 5] + b"\xff" * (length - 3) + data[start + 2 + length :]


def test_a_picture_that_no_decoder_reads_is_replaced_as_by_the_workers(
    own_jpegs, build, settings, painted, drawn, caplog
):
    index = build(own_jpegs)
    path = own_jpegs / "images" / "train" / "0003.jpg"
    path.write_bytes(no_decoder_reads(path.read_bytes()))
    chosen = settings(index=index, workers=2, recipe=Recipe(mixup=1.0))
    found, expected = painted(chosen), drawn(chosen)
    assert sum("0003.jpg" in record.getMessage() for record in caplog.records) == 2
    for ours, theirs in zip(found, expected, strict=True):
        assert ours[2] == theirs[2]
        assert torch.equal(ours[1], theirs[1])
        assert (ours[0] - theirs[0]).abs().mean() < MOST_LEVELS


def test_too_many_such_pictures_end_the_run(own_jpegs, build, settings, painted):
    index = build(own_jpegs)
    for path in (own_jpegs / "images" / "train").iterdir():
        path.write_bytes(no_decoder_reads(path.read_bytes()))
    with pytest.raises(UnreadablePicturesError, match="jpg"):
        painted(settings(index=index))


def test_a_picture_that_is_gone_is_replaced_as_by_the_workers(own_jpegs, build, settings, painted, drawn):
    index = build(own_jpegs)
    (own_jpegs / "images" / "train" / "0005.jpg").unlink()
    for ours, theirs in zip(painted(settings(index=index)), drawn(settings(index=index)), strict=True):
        assert torch.equal(ours[1], theirs[1])


def test_a_picture_of_another_size_than_in_the_scan_is_named_with_both(own_jpegs, build, settings, painted, caplog):
    index = build(own_jpegs)
    (own_jpegs / "images" / "train" / "0005.jpg").write_bytes(PLAIN["4:2:0"])
    painted(settings(index=index))
    assert re.search(r"0005.jpg: is 96x64 pixels at 1/1 now, was \d+x\d+ in the scan", caplog.text)
