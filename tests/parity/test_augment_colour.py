"""Colour change against hsv.npz."""

import numpy as np
import pytest

from yolov9.data.augment import bgr_to_rgb_with_hsv, hsv_factors, scale_hsv

HUE_LEVELS = 180
"""OpenCV keeps the hue of an 8-bit picture as 0 … 179."""


@pytest.fixture(scope="module")
def fixture(parity_dir):
    with np.load(parity_dir / "data" / "hsv.npz") as data:
        return dict(data)


class Recorded(np.random.Generator):
    """Answers with given draws from -1 … 1."""

    def __init__(self, draws):
        super().__init__(np.random.PCG64(0))
        self.draws = draws

    def uniform(self, low, high, size):
        assert (low, high, size) == (-1.0, 1.0, 3)
        return self.draws


@pytest.mark.parametrize("number", range(3))
def test_factors_and_table(fixture, number):
    factors = hsv_factors(Recorded(fixture["draws"][number]), tuple(fixture["gains"]))
    np.testing.assert_allclose(factors, fixture["factors"][number], rtol=1e-12)
    levels = np.repeat(np.arange(256, dtype=np.uint8)[:, None, None], 3, axis=2)
    scale_hsv(levels, factors)
    hue, saturation, value = levels[:, 0].T
    expected = fixture["lut_h_s_v"][number]
    np.testing.assert_array_equal(hue[:HUE_LEVELS] % HUE_LEVELS, expected[0, :HUE_LEVELS])
    np.testing.assert_array_equal(saturation, expected[1])
    np.testing.assert_array_equal(value, expected[2])


@pytest.mark.parametrize("number", range(3))
def test_picture(fixture, number):
    picture = fixture["image_bgr"][number]
    out = np.empty_like(picture)
    bgr_to_rgb_with_hsv(picture, out, fixture["factors"][number])
    difference = np.abs(out[..., ::-1].astype(int) - fixture["out_bgr"][number])
    assert (difference <= 2).mean() >= 0.99
