import pytest
import torch

from yolov9.ops import clip_boxes, iou_matrix, scale_boxes, xywh_to_xyxy, xyxy_to_xywh


def test_formats_are_inverse():
    boxes = torch.rand(5, 7, 4)
    torch.testing.assert_close(xyxy_to_xywh(xywh_to_xyxy(boxes)), boxes)


def test_centre_and_size_become_corners():
    assert xywh_to_xyxy(torch.tensor([10.0, 20.0, 4.0, 8.0])).tolist() == [8, 16, 12, 24]


def test_corners_outside_move_onto_the_border():
    boxes = torch.tensor([[-5.0, -6.0, 300.0, 90.0], [10.0, 20.0, 30.0, 40.0]])
    assert clip_boxes(boxes, (80, 200)).tolist() == [[0, 0, 200, 80], [10, 20, 30, 40]]


def test_input_is_left_alone():
    boxes = torch.tensor([[-5.0, -6.0, 300.0, 90.0]])
    kept = boxes.clone()
    scale_boxes(boxes, (640, 640), (100, 200))
    assert torch.equal(boxes, kept)


def test_letterbox_is_undone_when_ratio_and_border_are_worked_out():
    # 480 x 640 in 640 x 640: scale 1, borders of 80 px above and below.
    boxes = torch.tensor([[100.0, 180.0, 200.0, 280.0]])
    assert scale_boxes(boxes, (640, 640), (480, 640)).tolist() == [[100, 100, 200, 200]]


def test_height_and_width_may_be_scaled_differently():
    boxes = torch.tensor([[30.0, 40.0, 50.0, 60.0]])
    found = scale_boxes(boxes, (320, 320), (640, 640), ratio_hw=(0.5, 0.25), pad_wh=(10.0, 20.0))
    assert found.tolist() == [[80, 40, 160, 80]]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_no_boxes_give_an_empty_matrix(shape):
    assert iou_matrix(torch.zeros(shape[0], 4), torch.zeros(shape[1], 4)).shape == shape
