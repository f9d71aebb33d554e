from importlib import import_module

import pytest
import torch
import torchvision

from yolov9.ops import iou_matrix, nms, xywh_to_xyxy
from yolov9.ops.nms import MAX_CANDIDATES
from yolov9.ops.suppress import BLOCK, suppress


def _prediction(pictures, classes, anchors, seed, *, size=64.0, score_steps=None):
    """Crowded random predictions; few score steps give equal scores."""
    generator = torch.Generator().manual_seed(seed)
    centre = torch.rand(pictures, 2, anchors, generator=generator) * size
    extent = torch.rand(pictures, 2, anchors, generator=generator) * size / 3
    score = torch.rand(pictures, classes, anchors, generator=generator)
    if score_steps:
        score = (score * score_steps).floor() / score_steps
    return torch.cat((centre, extent, score), 1)


def _greedy(prediction, conf, iou, agnostic, multi_label, max_det):
    """The rule in words of one picture: (box number, class) in the order in which they are kept."""
    boxes, scores = xywh_to_xyxy(prediction[:4].T), prediction[4:].T
    pairs = (scores > conf).nonzero().tolist()
    if not multi_label:
        pairs = [(box, label) for box, label in pairs if label == int(scores[box].argmax())]
    pairs.sort(key=lambda pair: -float(scores[pair[0], pair[1]]))
    left, top, right, bottom = boxes.unbind(1)
    area = (right - left) * (bottom - top)
    overlap = (torch.minimum(right[:, None], right) - torch.maximum(left[:, None], left)).clamp(min=0) * (
        torch.minimum(bottom[:, None], bottom) - torch.maximum(top[:, None], top)
    ).clamp(min=0)
    too_much = (overlap / (area[:, None] + area - overlap) > iou).tolist()
    kept = []
    for box, label in pairs:
        if not any(too_much[other][box] and (agnostic or label == own) for other, own in kept):
            kept.append((box, label))
    return kept[:max_det]


@pytest.mark.parametrize("score_steps", [None, 5])
@pytest.mark.parametrize("agnostic", [False, True])
@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("max_det", [5, 300])
def test_rows_are_those_of_the_greedy_rule_in_its_order(score_steps, agnostic, multi_label, max_det):
    prediction = _prediction(3, 4, 2 * BLOCK, seed=1, score_steps=score_steps)
    found = nms(prediction, 0.3, 0.5, agnostic=agnostic, multi_label=multi_label, max_det=max_det)
    for picture, rows in zip(prediction, found, strict=True):
        expected = _greedy(picture, 0.3, 0.5, agnostic, multi_label, max_det)
        box = torch.tensor([pair[0] for pair in expected])
        label = torch.tensor([pair[1] for pair in expected])
        assert torch.equal(rows[:, :4], xywh_to_xyxy(picture[:4].T[box]))
        assert torch.equal(rows[:, 4], picture[4 + label, box])
        assert torch.equal(rows[:, 5].long(), label)


def test_same_boxes_as_torchvision_for_one_class():
    prediction = _prediction(1, 1, 3 * BLOCK + 1, seed=2)
    boxes, scores = xywh_to_xyxy(prediction[0, :4].T), prediction[0, 4]
    kept = torchvision.ops.nms(boxes, scores, 0.6)
    rows = nms(prediction, 0.0, 0.6, max_det=1000)[0]
    assert torch.equal(rows[:, :4], boxes[kept])


def test_a_picture_gives_the_same_rows_alone_and_in_a_batch():
    prediction = _prediction(6, 3, 700, seed=3)
    prediction[2] = 0
    together = nms(prediction, 0.1, multi_label=True)
    for i in range(len(prediction)):
        assert torch.equal(together[i], nms(prediction[i : i + 1], 0.1, multi_label=True)[0])


def test_parts_of_a_batch_are_joined_in_order(monkeypatch):
    prediction = _prediction(5, 3, 100, seed=4)
    together = nms(prediction)
    # yolov9.ops.nms is the function; the module of that name is found by import only.
    monkeypatch.setattr(import_module("yolov9.ops.nms"), "SCORES_PER_PASS", 600)
    for one, other in zip(nms(prediction), together, strict=True):
        assert torch.equal(one, other)


def test_only_the_best_candidates_take_part():
    anchors = MAX_CANDIDATES + 1
    prediction = torch.zeros(1, 5, anchors)
    prediction[0, :4] = torch.tensor([50.0, 50.0, 20.0, 20.0])[:, None]
    prediction[0, 4] = 0.9
    prediction[0, :2, 17] = 200.0  # a box of its own with the lowest score
    prediction[0, 4, 17] = 0.5
    assert len(nms(prediction)[0]) == 1
    assert len(nms(prediction[..., 1:])[0]) == 2


@pytest.mark.parametrize("score_steps", [None, 4])
def test_the_limit_cuts_boxes_with_several_labels_in_stable_order(monkeypatch, score_steps):
    # Boxes far apart are all kept, so the candidates show: the best 50, and among equal scores the first ones.
    prediction = _prediction(2, 3, 100, seed=7, score_steps=score_steps)
    prediction[:, :2] = torch.arange(100.0) * 100
    monkeypatch.setattr(import_module("yolov9.ops.nms"), "MAX_CANDIDATES", 50)
    for picture, rows in zip(prediction, nms(prediction, 0.2, multi_label=True), strict=True):
        box, label = zip(*_greedy(picture, 0.2, 0.45, False, True, 50), strict=True)
        assert torch.equal(rows[:, 0], xywh_to_xyxy(picture[:4].T)[list(box), 0])
        assert rows[:, 5].tolist() == list(label)


def test_scores_and_overlaps_equal_to_their_threshold():
    prediction = torch.tensor([[[4.0, 4.0], [2.0, 3.0], [8.0, 8.0], [4.0, 2.0], [0.5, 0.75]]])  # IoU 0.5
    assert len(nms(prediction, conf=0.5, iou=0.9)[0]) == 1
    assert len(nms(prediction, conf=0.25, iou=0.5)[0]) == 2
    assert len(nms(prediction, conf=0.25, iou=0.499)[0]) == 1


def test_class_filter_looks_at_the_best_class_of_a_box():
    prediction = torch.tensor([10.0, 10.0, 4.0, 4.0, 0.9, 0.8]).view(1, 6, 1)
    assert len(nms(prediction, classes=[1])[0]) == 0
    assert nms(prediction, classes=[1], multi_label=True)[0][:, 5].tolist() == [1]


def test_boxes_without_area_are_kept():
    prediction = torch.tensor([10.0, 10.0, 0.0, 0.0, 0.9]).view(1, 5, 1).repeat(1, 1, 3)
    assert len(nms(prediction)[0]) == 3


def test_half_precision_predictions_give_float32_rows():
    rows = nms(_prediction(1, 3, 50, seed=5).half())[0]
    assert rows.dtype == torch.float32
    assert len(rows)


@pytest.mark.parametrize("shape", [(0, 7, 10), (2, 7, 0), (2, 7, 10)])
def test_nothing_found_gives_empty_rows(shape):
    found = nms(torch.zeros(shape))
    assert [rows.shape for rows in found] == [(0, 6)] * shape[0]


@pytest.mark.parametrize("wrong", [{"conf": 1.5}, {"iou": -0.1}, {"max_det": 0}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        nms(torch.zeros(1, 6, 3), **wrong)


def test_a_long_chain_of_overlaps_is_settled():
    # Each box overlaps the next one only: every second one stays.
    left = torch.arange(3 * BLOCK, dtype=torch.float32) * 4
    boxes = torch.stack((left, torch.zeros_like(left), left + 10, torch.full_like(left, 10)), 1)
    assert iou_matrix(boxes[:1], boxes[1:3])[0].tolist() == pytest.approx([6 / 14, 2 / 18])
    position, count = suppress(boxes[None], torch.zeros(1, len(left), dtype=torch.long), 0.4, 1000)
    assert position[0, : int(count)].tolist() == list(range(0, 3 * BLOCK, 2))
