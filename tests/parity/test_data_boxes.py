"""Box conversions and size rounding against parity/data/boxes.json."""

import json

import numpy as np
import pytest
import torch

from yolov9.config.picture_size import rounded_size
from yolov9.data.box_convert import xywhn_to_xyxy, xyxy_to_xywhn
from yolov9.engine.coco_scores import CocoAnnotations
from yolov9.ops.boxes import scale_boxes


@pytest.fixture(scope="module")
def boxes(parity_dir):
    return json.loads((parity_dir / "data" / "boxes.json").read_text())


def test_normalised_boxes_become_pixel_corners(boxes):
    corners = xywhn_to_xyxy(np.array(boxes["xywhn"]), np.array((640, 480)), np.array((5, 7)))
    np.testing.assert_allclose(corners, boxes["xywhn_to_xyxy_w640_h480_pad5_7"], rtol=0, atol=1e-9)


def test_pixel_corners_become_normalised_boxes(boxes):
    normalised = xyxy_to_xywhn(np.array(boxes["xyxy"]), 640, 480)
    np.testing.assert_allclose(normalised, boxes["xyxy_to_xywhn_w640_h480"], rtol=0, atol=1e-12)


def test_pixel_corners_are_clipped_with_a_margin(boxes):
    normalised = xyxy_to_xywhn(np.array(boxes["xyxy"]), 640, 480, clip_margin=1e-3)
    np.testing.assert_allclose(normalised, boxes["xyxy_to_xywhn_clip_eps0.001"], rtol=0, atol=1e-12)


def test_boxes_go_back_to_the_original_picture(boxes):
    corners = torch.tensor(boxes["xyxy"])
    wide = scale_boxes(corners, (384, 640), (720, 1280))
    np.testing.assert_allclose(wide, boxes["scale_boxes_from_384x640_to_720x1280"], rtol=0, atol=1e-4)


def test_boxes_go_back_by_a_given_ratio_and_border(boxes):
    square = scale_boxes(torch.tensor(boxes["xyxy"]), (640, 640), (375, 500), (1.28, 1.28), (0, 80))
    np.testing.assert_allclose(square, boxes["scale_boxes_from_640x640_to_375x500_given_ratio_pad"], rtol=0, atol=1e-4)


def test_picture_size_is_rounded_up_to_the_stride(boxes):
    for pair, expected in boxes["check_img_size"].items():
        size, stride = (int(part) for part in pair.split("/"))
        assert rounded_size(size, stride) == expected


def test_channels_are_rounded_up_to_a_multiple_of_8(boxes):
    for channels, expected in boxes["make_divisible_8"].items():
        assert rounded_size(float(channels), 8) == expected


def test_80_classes_get_the_category_ids_of_coco(boxes, tmp_path):
    ids = boxes["coco80_to_91"]
    content = {"images": [], "annotations": [], "categories": [{"id": number, "name": f"c{number}"} for number in ids]}
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(content))
    assert CocoAnnotations(path).category_ids([f"class{number}" for number in range(80)]) == ids
