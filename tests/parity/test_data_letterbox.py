"""Letterbox and batch shapes against parity/data/letterbox.json and parity/data/rect.json."""

import json

import numpy as np
import pytest

from yolov9.data.letterbox import BORDER_GREY, letterbox, plan_letterbox
from yolov9.data.rect import plan_rect_batches


@pytest.fixture(scope="module")
def letterbox_cases(parity_dir):
    return json.loads((parity_dir / "data" / "letterbox.json").read_text())


def _options(case):
    options = dict(case["options"])
    options["scale_fill"] = options.pop("scaleFill", False)
    shape = options.pop("new_shape")
    return {"new_shape": shape if isinstance(shape, int) else tuple(shape), **options}


def test_scale_border_and_shape_are_those_of_the_reference(letterbox_cases):
    for case in letterbox_cases:
        plan = plan_letterbox(tuple(case["in_hw"]), **_options(case))
        top, bottom, left, right = case["content_top_bottom_left_right"]
        assert list(plan.out_hw) == case["out_hw"], case
        assert list(plan.ratio_wh) == case["ratio_wh"], case
        assert list(plan.pad_wh) == case["pad_wh"], case
        assert (plan.top, plan.left) == (top, left), case
        assert plan.out_hw[0] - plan.content_hw[0] - plan.top == bottom, case
        assert plan.out_hw[1] - plan.content_hw[1] - plan.left == right, case


def test_letterboxed_picture_has_the_shape_and_grey_borders_of_the_reference(letterbox_cases):
    for case in letterbox_cases:
        image = np.full((*case["in_hw"], 3), 7, np.uint8)
        out, _ = letterbox(image, **_options(case))
        top, bottom, left, right = case["content_top_bottom_left_right"]
        height, width = case["out_hw"]
        content = out[top : height - bottom, left : width - right]
        assert out.shape == (height, width, 3), case
        assert (content == 7).all(), case
        assert (out == BORDER_GREY).sum() == out.size - content.size, case


def test_order_and_batch_shapes_are_those_of_the_reference(parity_dir):
    for case in json.loads((parity_dir / "data" / "rect.json").read_text()):
        sizes = np.array(case["image_wh"], np.int32)
        plan = plan_rect_batches(sizes, case["batch"], case["img_size"], stride=case["stride"], pad=case["pad"])
        assert plan.order.tolist() == case["order"]
        assert plan.shapes_hw.tolist() == case["batch_shapes_hw"]
