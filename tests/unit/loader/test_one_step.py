"""One geometric step against the steps one by one, and pixels against labels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yolov9.data.geometry import PerspectiveLimits, draw_perspective, perspective_matrix, warp_boxes
from yolov9.data.letterbox import loaded_hw
from yolov9.data.mosaic import compose
from yolov9.data.objects import warp_objects
from yolov9.data.scene import Labelled, mosaic_objects
from yolov9.data.tiles import Drawable, flip_matrix, mosaic_tiles

IMGSZ = 640
SCRATCH_HIGH = PerspectiveLimits(degrees=0.0, translate=0.1, scale=0.9, shear=0.0, perspective=0.0)
EVERYTHING = PerspectiveLimits(degrees=10.0, translate=0.1, scale=0.5, shear=5.0, perspective=0.0003)


def test_one_matrix_equals_the_single_steps_on_1000_draws():
    """Boxes of the source, through the one matrix that pixels take, against scale, place, warp and flip in turn."""
    rng = np.random.default_rng(0)
    worst = 0.0
    for draw in range(1000):
        source_wh = tuple(rng.integers(100, 2000, 2).tolist())
        tile = mosaic_tiles([0], [source_wh], tuple(rng.integers(IMGSZ // 2, 3 * IMGSZ // 2, 2).tolist()), IMGSZ)[0]
        draws = draw_perspective(rng, EVERYTHING if draw % 2 else SCRATCH_HIGH)
        matrix = perspective_matrix(draws, (2 * IMGSZ,) * 2, (IMGSZ,) * 2)
        flip = flip_matrix((IMGSZ, IMGSZ), upside_down=True, left_right=True)
        low = rng.uniform(0, 0.8, (5, 2))
        boxes = np.concatenate((low, low + rng.uniform(0.05, 0.2, (5, 2))), axis=1)

        one_step = warp_boxes(boxes * (source_wh * 2), flip @ matrix @ tile.matrix(), (IMGSZ,) * 2)

        height, width = loaded_hw((source_wh[1], source_wh[0]), IMGSZ)
        placed = boxes * ((width, height) * 2) + tile.offset_xy * 2
        warped = warp_boxes(placed, matrix, (IMGSZ,) * 2)
        steps = np.stack((IMGSZ - warped[:, 2], IMGSZ - warped[:, 3], IMGSZ - warped[:, 0], IMGSZ - warped[:, 1]), 1)
        worst = max(worst, float(np.abs(one_step - steps).max()))
    assert worst < 1e-6


def bright_square(source_wh, box):
    picture = np.zeros((source_wh[1], source_wh[0], 3), np.uint8)
    x1, y1, x2, y2 = box
    picture[y1:y2, x1:x2] = 255
    return picture


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_pixels_lie_where_labels_say(seed, everything):
    """The bright rectangle of a source, found in the output, has the edges of its warped box."""
    rng = np.random.default_rng(seed)
    source_wh = (300, 200)
    box = (90, 60, 210, 140)
    labels = np.array([[0, 0.5, 0.5, 0.4, 0.4]], np.float32)
    imgsz = 320
    tiles = mosaic_tiles([0], [source_wh], tuple(rng.integers(160, 480, 2).tolist()), imgsz)
    objects = mosaic_objects(tiles, [Labelled(0, source_wh, labels, [None])], imgsz)
    limits = EVERYTHING if everything else SCRATCH_HIGH
    draws = draw_perspective(rng, limits)
    matrix = perspective_matrix(draws, (640, 640), (imgsz, imgsz))
    _, boxes = warp_objects(objects, matrix, draws.scale, (imgsz, imgsz))
    out = np.empty((imgsz, imgsz, 3), np.uint8)
    pixels = bright_square(source_wh, box)
    compose(tiles, matrix, lambda *_: Drawable(pixels, (1.0, 1.0)), out)
    bright = out[..., 0] > 180
    if not len(boxes):
        return
    if everything and not (boxes > 1).all() & (boxes < imgsz - 1).all():
        return  # a turned box that is cut off encloses corners that nobody sees
    columns, rows = np.flatnonzero(bright.any(axis=0)), np.flatnonzero(bright.any(axis=1))
    found = np.array((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))
    # An edge is found to the next whole pixel, or a blurred one further; corners of turned boxes look blunt.
    tolerance = 4.0 if everything else 1.0 + draws.scale / 2
    np.testing.assert_allclose(found, boxes[0], atol=tolerance)


@pytest.mark.parametrize("scale", [0.12, 0.3, 0.5, 0.77, 1.0, 1.3, 1.9])
def test_tiles_leave_no_gap_and_no_seam(scale):
    """Four white pictures around a point in the middle fill the output where the canvas is covered."""
    white = np.full((300, 400, 3), 255, np.uint8)
    tiles = mosaic_tiles([0, 1, 2, 3], [(400, 300)] * 4, (201, 190), 200)
    matrix = np.array(((scale, 0, 100 - scale * 200.3), (0, scale, 100 - scale * 189.7), (0, 0, 1)))
    out = np.empty((200, 200, 3), np.uint8)
    compose(tiles, matrix, lambda *_: Drawable(white, (1.0, 1.0)), out)
    half_w, half_h = int(100 * min(scale * 2, 1)) - 3, int(100 * min(scale * 1.5, 1)) - 3
    assert (out[100 - half_h : 100 + half_h, 100 - half_w : 100 + half_w] == 255).all()


def test_invisible_pictures_are_not_read():
    read = []

    def reader(picture, scale):
        read.append(picture)
        return Drawable(np.zeros((300, 400, 3), np.uint8), (1.0, 1.0))

    tiles = mosaic_tiles([0, 1, 2, 3], [(400, 300)] * 4, (200, 200), 200)
    matrix = np.array(((1.9, 0, -1.9 * 210), (0, 1.9, -1.9 * 210), (0, 0, 1.0)))
    compose(tiles, matrix, reader, np.empty((200, 200, 3), np.uint8))
    assert read == [3]


@pytest.mark.parametrize("reduction", [2, 4, 8])
def test_a_reduced_picture_lands_in_the_same_place(reduction):
    """A ramp from left to right shows a shift as a change of grey: one level is 768 / 250 = 3 source pixels."""
    ramp = np.repeat(np.repeat(np.linspace(0, 250, 768)[None], 512, axis=0)[..., None], 3, axis=2)
    small = ramp.reshape(512 // reduction, reduction, 768 // reduction, reduction, 3).mean(axis=(1, 3))
    tiles = mosaic_tiles([0], [(768, 512)], (320, 320), 320)
    still = PerspectiveLimits(degrees=0, translate=0, scale=0, shear=0, perspective=0)
    draws = draw_perspective(np.random.default_rng(0), still)._replace(scale=2.4 / reduction)
    matrix = perspective_matrix(draws, (640, 640), (320, 320))
    whole, reduced = np.empty((320, 320, 3), np.uint8), np.empty((320, 320, 3), np.uint8)
    compose(tiles, matrix, lambda *_: Drawable(ramp.round().astype(np.uint8), (1.0, 1.0)), whole)
    compose(tiles, matrix, lambda *_: Drawable(small.round().astype(np.uint8), (reduction, reduction)), reduced)
    assert ((whole == 114) == (reduced == 114)).mean() > 0.98
    assert np.abs(whole.astype(int) - reduced).max() <= 1
