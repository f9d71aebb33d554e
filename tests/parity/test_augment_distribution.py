"""Random numbers of many samples are spread evenly over the ranges of the augmentation cases."""

import json

import numpy as np
import pytest

from yolov9.config.recipe import load_recipe
from yolov9.data.augment import hsv_factors
from yolov9.data.geometry import PerspectiveLimits, draw_perspective
from yolov9.data.order import sample_generator
from yolov9.data.scene import Labelled, mosaic_scene

SAMPLES = 3000
FARTHEST = 1.95 / SAMPLES**0.5
"""Kolmogorov-Smirnov distance from the even distribution; one set of numbers in a thousand is farther away."""
IMGSZ = 64
"""As in mosaic.json."""


def distance_from_even(values, low, high):
    places = (np.sort(values) - low) / (high - low)
    assert places[0] >= 0
    assert places[-1] <= 1
    steps = np.arange(len(places) + 1) / len(places)
    return max(np.abs(places - steps[:-1]).max(), np.abs(places - steps[1:]).max())


@pytest.fixture(scope="module")
def limits():
    recipe = load_recipe("scratch-high")
    return PerspectiveLimits(recipe.degrees, recipe.translate, recipe.scale, recipe.shear, recipe.perspective)


def test_scale_and_position(parity_dir, limits):
    """Against the case of geometry.json that was drawn with the same recipe."""
    cases = json.loads((parity_dir / "data" / "geometry.json").read_text())
    ranges = [[(low, high) for low, high, _ in case["draws_in_order_low_high_value"]] for case in cases]
    draws = np.array([draw_perspective(sample_generator(0, 0, position), limits) for position in range(SAMPLES)])
    scratch_high = [
        drawn
        for drawn in ranges
        if np.allclose(drawn[3], (1 - limits.scale, 1 + limits.scale))
        and np.allclose(drawn[6], (0.5 - limits.translate, 0.5 + limits.translate))
    ]
    assert scratch_high
    for number in (3, 6, 7):
        low, high = scratch_high[0][number]
        assert distance_from_even(draws[:, number], low, high) < FARTHEST


def test_centre_of_mosaics(parity_dir, limits):
    case = json.loads((parity_dir / "data" / "mosaic.json").read_text())["mosaics"][0]
    four = [Labelled(number, (64, 64), np.zeros((0, 5), np.float32), []) for number in range(4)]
    scenes = [mosaic_scene(sample_generator(0, 0, position), four, IMGSZ, limits, 0.0) for position in range(SAMPLES)]
    (low_y, high_y, _), (low_x, high_x, _) = case["centre_draws_y_then_x"]
    half_pixel = 0.5 / (high_x - low_x)
    centres = np.array([scene.tiles[0].region[2:] for scene in scenes]) + 0.5
    assert distance_from_even(centres[:, 0], low_x, high_x) < FARTHEST + half_pixel
    assert distance_from_even(centres[:, 1], low_y, high_y) < FARTHEST + half_pixel
    first = np.array([scene.tiles[0].picture for scene in scenes])
    assert np.abs(np.bincount(first, minlength=4) / SAMPLES - 0.25).max() < 0.03


def test_colour(parity_dir):
    with np.load(parity_dir / "data" / "hsv.npz") as fixture:
        gains = tuple(fixture["gains"])
    recipe = load_recipe("scratch-high")
    assert gains == (recipe.hsv_h, recipe.hsv_s, recipe.hsv_v)
    factors = np.array([hsv_factors(sample_generator(0, 0, position), gains) for position in range(SAMPLES)])
    for number, gain in enumerate(gains):
        assert distance_from_even(factors[:, number], 1 - gain, 1 + gain) < FARTHEST
