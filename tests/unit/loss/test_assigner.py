import pytest
import torch

from yolov9.loss import LossSettings
from yolov9.loss.anchors import make_anchors
from yolov9.loss.assigner import assign
from yolov9.loss.targets import PixelTargets

ANCHORS = make_anchors([(8, 8)], [8.0], torch.device("cpu"))
"""Points of a picture of 64 x 64 px."""


def _targets(*boxes, labels=None):
    table = torch.tensor([boxes], dtype=torch.float32)
    return PixelTargets(
        labels=torch.tensor([labels or [0] * len(boxes)]), boxes=table, real=torch.ones(1, len(boxes), dtype=torch.bool)
    )


def _predictions(half_size):
    """Boxes of one size around every anchor point, and equal scores of two classes."""
    points = ANCHORS.points[None]
    return torch.zeros(1, len(ANCHORS.points), 2), torch.cat((points - half_size, points + half_size), -1)


def _positives(assigned):
    """{anchor: target} of the first picture."""
    used = assigned.positive[0]
    anchors = assigned.anchors[0, used].tolist()
    assert len(set(anchors)) == len(anchors)
    return dict(zip(anchors, assigned.targets[0, used].tolist(), strict=True))


def test_only_anchors_strictly_inside_the_box_count():
    logits, boxes = _predictions(8.0)
    # The edges run through the points 12 and 28; only the point (20, 20), anchor 2 x 8 + 2, is inside.
    assigned = assign(logits, boxes, ANCHORS.points, _targets([12, 12, 28, 28]), LossSettings())
    assert _positives(assigned) == {18: 0}


def test_at_most_topk_anchors_are_taken_the_best_ones():
    logits, boxes = _predictions(16.0)
    assigned = assign(logits, boxes, ANCHORS.points, _targets([4, 4, 36, 36]), LossSettings(topk=4))
    # Centre (20, 20): the anchor there, and the best of its neighbours.
    positives = _positives(assigned)
    assert len(positives) == 4
    assert 18 in positives


def test_a_contested_anchor_goes_to_the_target_it_overlaps_most():
    logits, boxes = _predictions(8.0)
    targets = _targets([10, 10, 30, 30], [12.5, 12.5, 27.5, 27.5])
    assigned = assign(logits, boxes, ANCHORS.points, targets, LossSettings())
    assert _positives(assigned)[18] == 1


def test_the_best_anchor_gets_the_overlap_as_soft_target():
    logits, boxes = _predictions(8.0)
    assigned = assign(logits, boxes, ANCHORS.points, _targets([12, 12, 28, 28]), LossSettings())
    assert assigned.soft.max().item() == pytest.approx(1.0, abs=1e-4)


def test_a_box_that_no_prediction_overlaps_takes_no_anchor():
    logits, boxes = _predictions(8.0)
    assigned = assign(logits, boxes + 1000, ANCHORS.points, _targets([4, 4, 60, 60]), LossSettings())
    assert not assigned.positive.any()


def test_identical_targets_share_no_anchor():
    logits, boxes = _predictions(8.0)
    targets = _targets([4, 4, 60, 60], [4, 4, 60, 60], labels=[0, 1])
    assigned = assign(logits, boxes, ANCHORS.points, targets, LossSettings())
    assert set(_positives(assigned).values()) == {0}
