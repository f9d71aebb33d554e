"""parity/assigner: the label assigner alone."""

import json

import numpy as np
import pytest
import torch

from yolov9.loss.assigner import assign
from yolov9.loss.settings import LossSettings
from yolov9.loss.targets import PixelTargets

CASES = ("default", "padded-and-identical", "topk13")


@pytest.fixture(params=CASES)
def case(request, parity_dir):
    facts = json.loads((parity_dir / "assigner" / "index.json").read_text())
    assert set(facts) == set(CASES)
    with np.load(parity_dir / "assigner" / f"{request.param}.npz") as arrays:
        return facts[request.param], {name: torch.from_numpy(arrays[name]) for name in arrays}


@pytest.fixture
def answer(case):
    facts, arrays = case
    targets = PixelTargets(
        labels=arrays["gt_labels"][..., 0].long(), boxes=arrays["gt_boxes"], real=arrays["gt_mask"][..., 0] > 0
    )
    settings = LossSettings(topk=facts["topk"], alpha=facts["alpha"], beta=facts["beta"])
    logits = arrays["scores"].double().logit().float()
    return assign(logits, arrays["boxes"], arrays["points"], targets, settings), targets


def _by_anchor(assigned, values, anchors):
    """Values of the positive slots, put at their anchors: (B, anchors, ...)."""
    table = values.new_zeros(values.shape[0], anchors, *values.shape[2:])
    picture, slot = assigned.positive.nonzero(as_tuple=True)
    table[picture, assigned.anchors[picture, slot]] = values[picture, slot]
    return table


def test_same_anchors_are_positive(case, answer):
    facts, arrays = case
    assigned, _ = answer
    foreground = _by_anchor(assigned, assigned.positive, arrays["points"].shape[0])
    assert torch.equal(foreground, arrays["out_foreground"])
    assert int(assigned.positive.sum()) == facts["positives"]


def test_positive_anchors_get_the_same_label_and_box(case, answer):
    _, arrays = case
    assigned, targets = answer
    anchors = arrays["points"].shape[0]
    foreground = arrays["out_foreground"]
    label = targets.labels.gather(1, assigned.targets)
    box = targets.boxes.gather(1, assigned.targets[..., None].expand(-1, -1, 4))
    assert torch.equal(_by_anchor(assigned, label, anchors)[foreground], arrays["out_labels"][foreground].long())
    assert torch.equal(_by_anchor(assigned, box, anchors)[foreground], arrays["out_boxes"][foreground])


def test_soft_targets(case, answer):
    facts, arrays = case
    assigned, targets = answer
    image, anchor, label = arrays["out_score_index"].long().unbind(1)
    expected = torch.zeros_like(arrays["scores"])
    expected[image, anchor, label] = arrays["out_score_value"]
    picture, slot = assigned.positive.nonzero(as_tuple=True)
    found = torch.zeros_like(expected)
    found[picture, assigned.anchors[picture, slot], targets.labels.gather(1, assigned.targets)[picture, slot]] = (
        assigned.soft[picture, slot]
    )
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert float(assigned.soft.sum()) == pytest.approx(facts["score_sum"], rel=1e-5)
