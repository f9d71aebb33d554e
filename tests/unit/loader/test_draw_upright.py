"""Drawing along the axes against drawing through any matrix."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yolov9.data.brush import OPENCV
from yolov9.data.draw_turned import draw_turned
from yolov9.data.draw_upright import draw_upright
from yolov9.data.geometry import on_whole_pixel
from yolov9.data.mosaic import fill_rest
from yolov9.data.tiles import Drawable, Tile, flip_matrix, mosaic_tiles

SIDE = 160


def waves(width, height):
    """A smooth picture: a shift of a quarter pixel changes it by a few grey levels."""
    x, y = np.arange(width)[None], np.arange(height)[:, None]
    planes = [127 + 60 * np.sin(x / (3 + k)) + 60 * np.cos(y / (4 + k)) for k in range(3)]
    return np.stack(planes, axis=2).clip(10, 250).astype(np.uint8)


def scene(seed):
    rng = np.random.default_rng(seed)
    wh = tuple(rng.integers(40, 400, 2).tolist())
    centre = tuple(rng.integers(SIDE // 2, 3 * SIDE // 2, 2).tolist())
    tile: Tile = mosaic_tiles([0, 1, 2, 3], [wh] * 4, centre, SIDE)[rng.integers(4)]
    scale = rng.uniform(0.1, 1.9)
    shift = rng.uniform(-0.1, 0.1, 2) * SIDE + SIDE / 2 - scale * SIDE
    matrix = on_whole_pixel(np.array(((scale, 0, shift[0]), (0, scale, shift[1]), (0, 0, 1))), centre)
    left_right, upside_down = (rng.random(2) < 0.5).tolist()
    matrix = flip_matrix((SIDE, SIDE), upside_down=upside_down, left_right=left_right) @ matrix
    return tile, matrix, waves(*wh)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_both_ways_draw_the_same(compiled_brush, seed):
    tile, matrix, picture = scene(seed)
    turned = np.full((SIDE, SIDE, 3), 7, np.uint8)
    draw_turned(tile, matrix, lambda *_: Drawable(picture, (1.0, 1.0)), turned, OPENCV, None)
    for brush in (OPENCV, compiled_brush):
        upright = np.full((SIDE, SIDE, 3), 7, np.uint8)
        place = draw_upright(tile, matrix, lambda *_: Drawable(picture, (1.0, 1.0)), upright, brush, None)
        np.testing.assert_array_equal(upright == 7, turned == 7)
        if place is not None:
            x1, y1, x2, y2 = place
            assert np.abs(upright[y1:y2, x1:x2].astype(int) - turned[y1:y2, x1:x2]).max() <= 3


@pytest.mark.parametrize("seed", range(20))
def test_what_no_tile_covers_is_filled_and_nothing_else(seed):
    rng = np.random.default_rng(seed)
    (cx, cy), far = rng.integers(0, 40, 2).tolist(), rng.integers(0, 40, 8).tolist()
    corners = [(min(far[0], cx), min(far[1], cy), cx, cy), (cx, min(far[2], cy), max(far[3], cx), cy)]
    corners += [(min(far[4], cx), cy, cx, max(far[5], cy)), (cx, cy, max(far[6], cx), max(far[7], cy))]
    rectangles = [r for r in corners if r[0] < r[2] and r[1] < r[3]][: rng.integers(0, 5)]
    out = np.zeros((40, 40, 3), np.uint8)
    expected = np.full((40, 40, 3), 9, np.uint8)
    for x1, y1, x2, y2 in rectangles:
        expected[y1:y2, x1:x2] = 0
    fill_rest(out, rectangles, 9)
    np.testing.assert_array_equal(out, expected)
