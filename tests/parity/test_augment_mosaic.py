"""Mosaic and mixup against mosaic.npz: labels exactly, the picture through the one-step drawing."""

import json

import numpy as np
import pytest

from yolov9.data.augment import mixup
from yolov9.data.geometry import PerspectiveLimits
from yolov9.data.mosaic import compose
from yolov9.data.scene import Labelled, mosaic_objects, mosaic_scene
from yolov9.data.tiles import Drawable, mosaic_tiles

IMGSZ = 64


@pytest.fixture(scope="module")
def arrays(parity_dir):
    with np.load(parity_dir / "data" / "mosaic.npz") as data:
        return dict(data)


@pytest.fixture(scope="module")
def facts(parity_dir):
    return json.loads((parity_dir / "data" / "mosaic.json").read_text())


def pieces_and_tiles(arrays, case):
    pieces = []
    for number in case["tile_order_tl_tr_bl_br"]:
        height, width = arrays[f"src{number}"].shape[:2]
        labels = arrays[f"src{number}_labels"]
        pieces.append(Labelled(number, (width, height), labels, [None] * len(labels)))
    (_, _, y), (_, _, x) = case["centre_draws_y_then_x"]
    tiles = mosaic_tiles([p.picture for p in pieces], [p.size_wh for p in pieces], (int(x), int(y)), IMGSZ)
    return pieces, tiles


@pytest.mark.parametrize("number", range(3))
def test_labels(arrays, facts, number):
    pieces, tiles = pieces_and_tiles(arrays, facts["mosaics"][number])
    objects = mosaic_objects(tiles, pieces, IMGSZ)
    rows = np.concatenate((objects.classes[:, None], objects.boxes), axis=1)
    np.testing.assert_allclose(rows, arrays[f"m{number}_labels"], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("number", range(3))
def test_picture(arrays, facts, number):
    _, tiles = pieces_and_tiles(arrays, facts["mosaics"][number])
    out = np.empty((2 * IMGSZ, 2 * IMGSZ, 3), np.uint8)
    compose(tiles, np.eye(3), lambda picture, _: Drawable(arrays[f"src{picture}"], (1.0, 1.0)), out)
    difference = np.abs(out.astype(int) - arrays[f"m{number}_image"])
    assert (difference <= 2).mean() >= 0.99


def test_mixup(arrays, facts):
    out = arrays["m0_image"].copy()
    mixup(out, arrays["m1_image"], facts["mixup"]["ratio_used"])
    assert (np.abs(out.astype(int) - arrays["mixup_image"]) <= 2).mean() >= 0.99
    joined = np.concatenate((arrays["m0_labels"], arrays["m1_labels"]))
    np.testing.assert_array_equal(joined, arrays["mixup_labels"])


def test_centre_is_drawn_y_first_from_the_middle_half_of_the_canvas(arrays, facts):
    case = facts["mosaics"][1]
    ranges = case["centre_draws_y_then_x"]

    class Recorded(np.random.Generator):
        def permutation(self, count):
            return np.arange(count)

        def random(self, count):
            return np.full(count, 0.5)  # the perspective: nothing but the shift to the middle

        def uniform(self, low, high, size):
            assert [(low, high)] * size == [tuple(limits[:2]) for limits in ranges]
            return np.array([limits[2] for limits in ranges])

    pieces, tiles = pieces_and_tiles(arrays, case)
    limits = PerspectiveLimits(degrees=0.0, translate=0.1, scale=0.9, shear=0.0, perspective=0.0)
    scene = mosaic_scene(Recorded(np.random.PCG64(0)), pieces, IMGSZ, limits, 0.0)
    assert scene.tiles == tiles
    # border_passed_on_hw: the output is a border of half a picture smaller on each side.
    assert case["border_passed_on_hw"] == [-IMGSZ // 2] * 2
    np.testing.assert_allclose(scene.matrix, [[1, 0, -IMGSZ / 2], [0, 1, -IMGSZ / 2], [0, 0, 1]])
