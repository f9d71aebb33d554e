"""Random perspective against geometry.json and box_candidates.json."""

import json

import numpy as np
import pytest

from yolov9.data.geometry import (
    PerspectiveDraws,
    PerspectiveLimits,
    box_candidates,
    draw_perspective,
    perspective_matrix,
)
from yolov9.data.objects import Objects, warp_objects

CASES = range(10)


@pytest.fixture(scope="module")
def cases(parity_dir):
    return json.loads((parity_dir / "data" / "geometry.json").read_text())


def draws_of(case):
    return PerspectiveDraws(*(value for _, _, value in case["draws_in_order_low_high_value"]))


def test_every_case_is_covered(cases):
    assert len(cases) == len(CASES)


@pytest.mark.parametrize("number", CASES)
def test_matrix(cases, number):
    case = cases[number]
    matrix = perspective_matrix(draws_of(case), case["image_hw"], case["out_hw"])
    # A step that changes nothing was skipped, so there is no matrix: it must be the identity.
    np.testing.assert_allclose(matrix, case["matrix_applied"] or np.eye(3), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("number", CASES)
def test_boxes(cases, number):
    case = cases[number]
    rows = np.array(case["boxes_in_cls_xyxy"], float).reshape(-1, 5)
    outlines = [np.array(polygon) for polygon in case["polygons_in"]] or [None] * len(rows)
    draws = draws_of(case)
    matrix = perspective_matrix(draws, case["image_hw"], case["out_hw"])
    classes, boxes = warp_objects(Objects(rows[:, 0], rows[:, 1:], outlines), matrix, draws.scale, case["out_hw"])
    expected = np.array(case["boxes_out_cls_xyxy"]).reshape(-1, 5)
    np.testing.assert_array_equal(classes, expected[:, 0])
    np.testing.assert_allclose(boxes, expected[:, 1:], rtol=0, atol=1e-9)


@pytest.mark.parametrize("number", CASES)
def test_draws_come_in_the_same_order_and_ranges(cases, number):
    """A generator that answers with the ends of all ranges, and with the fixture's place in each."""
    case = cases[number]
    low, high, value = np.array(case["draws_in_order_low_high_value"]).T
    limits = PerspectiveLimits(**case["options"])
    place = np.divide(value - low, high - low, out=np.zeros(len(low)), where=high > low)

    class Recorded(np.random.Generator):
        def __init__(self, shares):
            super().__init__(np.random.PCG64(0))
            self.shares = shares

        def random(self, count):
            assert count == len(self.shares)
            return self.shares

    for shares, expected in ((0 * low, low), (0 * low + 1, high), (place, draws_of(case))):
        np.testing.assert_allclose(draw_perspective(Recorded(shares), limits), expected, rtol=0, atol=1e-12)


def test_box_candidates(parity_dir):
    fixture = json.loads((parity_dir / "data" / "box_candidates.json").read_text())
    assert fixture["defaults"] == {"wh_thr": 2, "ar_thr": 100, "area_thr": 0.1}
    for case in fixture["cases"]:
        before, after = (np.array([case[key]], float) for key in ("before_xyxy", "after_xyxy"))
        kept = box_candidates(before, after, case["options"].get("area_thr", 0.1))
        assert kept.tolist() == [case["kept"]], case
