"""Rectangular batches beyond the fixtures."""

import numpy as np

from yolov9.data.rect import plan_rect_batches


def test_pictures_of_equal_shape_stay_in_order():
    sizes = np.tile(np.array([[640, 480], [480, 640]], np.int32), (100, 1))
    plan = plan_rect_batches(sizes, 16, 640)
    assert plan.order.tolist() == [*range(0, 200, 2), *range(1, 200, 2)]


def test_panorama_still_has_a_height():
    plan = plan_rect_batches(np.array([[4000, 160]], np.int32), 4, 64, pad=0.0)
    assert plan.shapes_hw.tolist() == [[32, 64]]
