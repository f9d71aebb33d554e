"""The brush in C against OpenCV's, and both against bilinear interpolation in floating point."""

import ctypes
import platform
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yolov9.data.augment import bgr_to_rgb_with_hsv, scaled_grey
from yolov9.data.brush import OPENCV, Line
from yolov9.data.compiled import COMPILERS, FLAGS, SOURCE
from yolov9.data.compiled_brush import CompiledBrush

FACTORS = np.array(((1.008, 1.4, 0.73), (0.992, 0.6, 1.3), (1.015, 1.7, 1.4), (1.0, 1.0, 1.0)))


def picture(height, width):
    """Smooth colours with some noise; grey, black and white among them."""
    rng = np.random.default_rng(0)
    x, y = np.arange(width)[None], np.arange(height)[:, None]
    planes = [127 + 90 * np.sin(x / (23 + 7 * k)) + 60 * np.cos(y / (31 + 5 * k)) for k in range(3)]
    made = np.stack(planes, axis=2) + rng.integers(-9, 10, (height, width, 3))
    made[:4], made[4:8], made[8:12] = 0, 114, 255
    return made.clip(0, 255).astype(np.uint8)


def interpolated(source, x, y, shape_hw):
    """Bilinear interpolation, one axis after the other, with edges that go on for ever."""
    result = source.astype(np.float64)
    for axis, (line, count) in enumerate(((y, shape_hw[0]), (x, shape_hw[1]))):
        size = source.shape[axis]
        place = np.clip(line.start + line.step * np.arange(count), 0, size - 1)
        low = np.minimum(place.astype(int), max(size - 2, 0))
        high = np.minimum(low + 1, size - 1)
        share = (place - low).reshape(-1, *[1] * (2 - axis))
        result = np.take(result, low, axis) * (1 - share) + np.take(result, high, axis) * share
    return result


@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize("hw", [(300, 400), (20, 1), (13, 257), (16, 511)])
def test_colours_are_those_of_opencv(compiled_brush, factors, hw):
    source = picture(*hw)
    expected, found = np.empty_like(source), np.empty_like(source)
    bgr_to_rgb_with_hsv(source, expected, factors)
    compiled_brush.recolour(source, found, factors)
    difference = np.abs(expected.astype(int) - found)
    assert (difference <= 2).mean() > 0.995
    assert difference.max() <= 18  # a hue that comes out two steps of 30 in 255 beside, at full saturation


@pytest.mark.parametrize("number", range(3))
def test_colours_are_those_of_the_original(compiled_brush, parity_dir, number):
    with np.load(parity_dir / "data" / "hsv.npz") as fixture:
        out = np.empty_like(fixture["image_bgr"][number])
        compiled_brush.recolour(fixture["image_bgr"][number], out, fixture["factors"][number])
        assert (np.abs(out[..., ::-1].astype(int) - fixture["out_bgr"][number]) <= 2).mean() >= 0.99


def test_parts_of_larger_pictures_and_pictures_in_place(compiled_brush):
    source = picture(60, 80)
    whole = np.empty_like(source)
    compiled_brush.recolour(source, whole, FACTORS[0])
    out = np.full((100, 100, 3), 7, np.uint8)
    compiled_brush.recolour(source[10:50, 20:70], out[5:45, 30:80], FACTORS[0])
    np.testing.assert_array_equal(out[5:45, 30:80], whole[10:50, 20:70])
    assert (out[:5] == 7).all()
    assert (out[5:45, 80:] == 7).all()
    compiled_brush.recolour(source, source, FACTORS[0])
    np.testing.assert_array_equal(source, whole)


@pytest.mark.parametrize("ratio", [0.0, 0.37, 0.5, 1.0])
@pytest.mark.parametrize("width", [1, 300])
def test_two_pictures_are_mixed_as_by_opencv(compiled_brush, ratio, width):
    first, second = picture(40, width), picture(40, width)[::-1].copy()
    expected, found = np.empty_like(first), np.empty_like(first)
    compiled_brush.mix(first, second, ratio, found, FACTORS[3])
    OPENCV.mix(first, second, ratio, expected, FACTORS[3])
    difference = np.abs(expected.astype(int) - found)
    assert (difference <= 3).mean() > 0.99


@pytest.mark.parametrize("factors", FACTORS)
def test_borders_have_the_grey_that_the_brushes_make_of_theirs(compiled_brush, factors):
    grey = np.full((1, 1, 3), 114, np.uint8)
    for brush in (compiled_brush, OPENCV):
        out = np.empty_like(grey)
        brush.recolour(grey, out, factors)
        assert (out == scaled_grey(114, factors)).all()


def test_no_factors_change_the_order_of_channels_only(compiled_brush):
    source = picture(20, 20)
    out = np.empty_like(source)
    compiled_brush.recolour(source, out, None)
    np.testing.assert_array_equal(out, source[..., ::-1])


SIZES = st.integers(1, 70)
LINES = st.builds(Line, st.floats(-5, 40), st.floats(-2.2, 2.2).filter(lambda step: abs(step) > 0.05))


@settings(max_examples=150, deadline=None)
@given(source_hw=st.tuples(SIZES, SIZES), out_hw=st.tuples(SIZES, SIZES), x=LINES, y=LINES)
def test_resampling_is_bilinear(compiled_brush, source_hw, out_hw, x, y):
    """Any part, any scale, mirrored or not; nothing beside it is written. One level for each of two roundings."""
    source = np.random.default_rng(0).integers(0, 256, (*source_hw, 3), dtype=np.uint8)
    exact = interpolated(source, x, y, out_hw)
    for brush, most in ((compiled_brush, 2.0), (OPENCV, 17.0)):  # OpenCV: 1/64 of a pixel, twice, of 255 levels
        canvas = np.full((out_hw[0] + 2, out_hw[1] + 2, 3), 7, np.uint8)
        brush.resample(source, x, y, canvas[1:-1, 1:-1], None, colours_first=False)
        assert np.abs(canvas[1:-1, 1:-1] - exact).max() <= most
        canvas[1:-1, 1:-1] = 7
        assert (canvas == 7).all()


@pytest.mark.parametrize("colours_first", [False, True])
@pytest.mark.parametrize("scale", [0.6, 1.0, 1.7])
def test_resampled_colours_are_those_of_opencv(compiled_brush, colours_first, scale):
    source = picture(90, 120)
    shape = round(90 * scale), round(120 * scale), 3
    line = Line(0.5 / scale - 0.5, 1 / scale)
    expected, found = np.empty(shape, np.uint8), np.empty(shape, np.uint8)
    OPENCV.resample(source, line, line, expected, FACTORS[0], colours_first=colours_first)
    compiled_brush.resample(source, line, line, found, FACTORS[0], colours_first=colours_first)
    difference = np.abs(expected.astype(int) - found)
    assert (difference <= 3).mean() > 0.99


def test_resampling_and_colours_in_one_are_those_one_after_the_other(compiled_brush):
    source, line = picture(90, 120), Line(0.3, 0.7)
    together, plain, after = (np.empty((80, 111, 3), np.uint8) for _ in range(3))
    compiled_brush.resample(source, line, line, together, FACTORS[1], colours_first=False)
    compiled_brush.resample(source, line, line, plain, None, colours_first=False)
    compiled_brush.recolour(plain, after, FACTORS[1])
    np.testing.assert_array_equal(together, after)
    compiled_brush.resample(source, line, line, together, FACTORS[1], colours_first=True)
    changed = np.empty_like(source)
    compiled_brush.recolour(source, changed, FACTORS[1])
    compiled_brush.resample(changed, line, line, after, None, colours_first=False)
    np.testing.assert_array_equal(together, after)


@pytest.mark.parametrize("hw", [(1, 1), (2, 1), (1, 7), (3, 3), (33, 32), (427, 333), (48, 64)])
def test_halves_are_those_of_opencv(compiled_brush, hw):
    source = np.random.default_rng(0).integers(0, 256, (*hw, 3), dtype=np.uint8)
    np.testing.assert_array_equal(compiled_brush.halve(source), OPENCV.halve(source))


@pytest.fixture(scope="session")
def brush_without_avx512(compiled_brush, tmp_path_factory):
    if platform.machine() != "x86_64":
        pytest.skip("only x86 has vectors of both lengths")
    library = tmp_path_factory.mktemp("brush") / "short.so"
    compiler = next(path for name in COMPILERS if (path := shutil.which(name)))
    subprocess.run([compiler, *FLAGS, "-mno-avx512f", str(SOURCE), "-o", str(library)], check=True)
    return CompiledBrush(ctypes.CDLL(str(library)))


@settings(max_examples=150, deadline=None)
@given(source_hw=st.tuples(SIZES, SIZES), out_hw=st.tuples(SIZES, SIZES), x=LINES, y=LINES, first=st.booleans())
def test_short_and_long_vectors_draw_the_same(compiled_brush, brush_without_avx512, source_hw, out_hw, x, y, first):
    source = np.random.default_rng(0).integers(0, 256, (*source_hw, 3), dtype=np.uint8)
    drawn = [np.empty((*out_hw, 3), np.uint8) for _ in range(2)]
    for brush, out in zip((compiled_brush, brush_without_avx512), drawn, strict=True):
        brush.resample(source, x, y, out, FACTORS[0], colours_first=first)
    np.testing.assert_array_equal(*drawn)
    np.testing.assert_array_equal(compiled_brush.halve(source), brush_without_avx512.halve(source))
