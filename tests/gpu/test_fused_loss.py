"""The fused parts of the loss against float64 twins: on a GPU, or on the CPU in Triton's interpreter."""

import os

import pytest
import torch
from torch.nn.functional import softplus

from yolov9.loss import LossSettings
from yolov9.loss.anchors import Anchors, make_anchors
from yolov9.loss.assigner import Assignment, assign
from yolov9.loss.targets import PixelTargets
from yolov9.loss.terms import box_terms, predicted_boxes
from yolov9.ops.plain import plain_operations

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.gpu(interpreter=True)
DEVICE, DTYPE, GRADIENT_ERROR = ("cpu", torch.float32, 1e-6) if INTERPRETED else ("cuda", torch.bfloat16, 3e-3)
PICTURES, ANCHORS, CLASSES, SLOTS = 3, 700, 17, 40


@pytest.mark.parametrize("positive_weight", [1.0, 2.5])
def test_class_term_equals_cross_entropy_against_a_full_table(positive_weight: float) -> None:
    from yolov9.loss.class_term_triton import class_term_fused

    generator = torch.Generator().manual_seed(3)
    logits = (torch.randn(PICTURES, ANCHORS * CLASSES, generator=generator) * 4).to(DEVICE, DTYPE).requires_grad_()
    index = torch.stack([torch.randperm(ANCHORS * CLASSES, generator=generator)[:SLOTS] for _ in range(PICTURES)])
    soft = torch.rand(PICTURES, SLOTS, generator=generator)
    index[:, 20:25], soft[:, 20:25] = index[:, :5], 0.0  # slots that are not in use share places with others
    index, soft = index.to(DEVICE), soft.to(DEVICE)

    total = class_term_fused(logits, index, soft, positive_weight)
    (total * 0.125).backward()

    twin = logits.detach().double().requires_grad_()
    table = torch.zeros_like(twin).scatter_add_(1, index, soft.double())
    expected = ((1 - table) * softplus(twin) + positive_weight * table * softplus(-twin)).sum()
    (expected * 0.125).backward()
    assert abs(float(total.detach()) / float(expected.detach()) - 1) < 1e-5
    assert float((logits.grad.double() - twin.grad).norm() / twin.grad.norm()) < GRADIENT_ERROR


HEIGHT, WIDTH, STRIDES = 96, 128, (8.0, 16.0, 32.0)
BINS = 16
TARGETS = 12


def _problem(seed: int) -> tuple[torch.Tensor, torch.Tensor, Anchors, PixelTargets]:
    """Sides, class scores, anchors and targets: crowded, one picture without any, and labels that repeat."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [(round(HEIGHT / stride), round(WIDTH / stride)) for stride in STRIDES]
    anchors = make_anchors(sizes, STRIDES, torch.device(DEVICE))
    count = len(anchors.points)
    sides = torch.randn(PICTURES, count, 4 * BINS, generator=generator) * 2
    logits = torch.randn(PICTURES, count, CLASSES, generator=generator) * 2
    centre = torch.rand(PICTURES, TARGETS, 2, generator=generator) * 0.6 + 0.2
    size = torch.rand(PICTURES, TARGETS, 2, generator=generator) * 0.5 + 0.05
    label = torch.randint(0, 3, (PICTURES, TARGETS, 1), generator=generator)
    table = torch.cat((label, centre, size), -1)
    table[0, 7:, 0], table[0, 7:, 1:], table[1, :, 0], table[1, :, 1:] = -1, 0, -1, 0
    targets = PixelTargets.from_table(table.to(DEVICE), (HEIGHT, WIDTH))
    return sides.to(DEVICE, DTYPE), logits.to(DEVICE, DTYPE), anchors, targets


def _by_anchor(assigned: Assignment, values: torch.Tensor) -> torch.Tensor:
    """Values of the slots in use, at the place of their anchor: (B, N), -1 elsewhere."""
    places = torch.full((PICTURES, int(assigned.anchors.max()) + 1), -1.0, device=DEVICE)
    for picture, (anchors, used) in enumerate(zip(assigned.anchors, assigned.positive, strict=True)):
        assert len(anchors[used].unique()) == int(used.sum())
        places[picture, anchors[used]] = values[picture, used].float()
    return places


@pytest.mark.parametrize("topk", [1, 10, 13])
@pytest.mark.parametrize("seed", [1, 2])
def test_anchors_go_to_the_targets_of_the_plain_assigner(seed: int, topk: int) -> None:
    from yolov9.loss.assigner_triton import assign_fused

    sides, logits, anchors, targets = _problem(seed)
    with plain_operations():
        boxes = predicted_boxes(sides, anchors.points, anchors.strides)
        expected = assign(logits, boxes, anchors.points, targets, LossSettings(topk=topk))
    assigned = Assignment(*assign_fused(logits, boxes, anchors.points, targets, LossSettings(topk=topk)))
    assert bool(expected.positive.any())
    used = _by_anchor(expected, expected.targets)
    assert torch.equal(_by_anchor(assigned, assigned.targets)[:, : used.shape[1]], used)
    torch.testing.assert_close(
        _by_anchor(assigned, assigned.soft), _by_anchor(expected, expected.soft), rtol=1e-4, atol=1e-6
    )
    assert float(assigned.soft[~assigned.positive].abs().sum()) == 0


def test_more_candidates_asked_for_than_there_are_anchors_in_the_kernel() -> None:
    from yolov9.loss.assigner_triton import assign_fused

    sides, logits, anchors, targets = _problem(4)
    few = slice(-6, None)
    boxes = predicted_boxes(sides, anchors.points, anchors.strides)[:, few].contiguous()
    assigned = assign_fused(logits[:, few].contiguous(), boxes, anchors.points[few], targets, LossSettings())
    assert assigned[0].shape == (PICTURES, TARGETS * 6)
    assert int(assigned[0].max()) < 6


def test_predicted_boxes_equal_those_in_float64() -> None:
    from yolov9.loss.predicted_boxes_triton import predicted_boxes_fused

    sides, _, anchors, _ = _problem(1)
    shares = sides.double().view(PICTURES, -1, 4, BINS).softmax(-1)
    lengths = (shares * torch.arange(BINS, device=DEVICE)).sum(-1) * anchors.strides
    expected = torch.cat((anchors.points - lengths[..., :2], anchors.points + lengths[..., 2:]), -1)
    boxes = predicted_boxes_fused(sides, anchors.points, anchors.strides)
    torch.testing.assert_close(boxes.double(), expected, rtol=1e-5, atol=1e-4)


def test_box_terms_and_their_gradient_equal_those_in_float64() -> None:
    from yolov9.loss.box_terms_triton import box_terms_fused

    sides, logits, anchors, targets = _problem(3)
    boxes = predicted_boxes(sides, anchors.points, anchors.strides)
    slots = assign(logits, boxes, anchors.points, targets, LossSettings())
    rest = slots.soft, slots.anchors, slots.targets, anchors.points, anchors.strides, targets.boxes
    leaf, twin = sides.clone().requires_grad_(), sides.double().requires_grad_()
    gains = torch.tensor([7.5, 1.5], device=DEVICE)
    sums = box_terms_fused(leaf, *rest)
    (sums * gains).sum().backward()
    with plain_operations():
        expected = box_terms(twin, *rest)
    (expected * gains).sum().backward()
    torch.testing.assert_close(sums, expected.float(), rtol=1e-5, atol=0)
    assert float((leaf.grad.double() - twin.grad).norm() / twin.grad.norm()) < GRADIENT_ERROR


def test_boxes_that_do_not_meet_have_the_slope_of_their_distance() -> None:
    from yolov9.loss.box_terms_triton import box_terms_fused

    sides, _, anchors, targets = _problem(5)
    far = targets.boxes + 400.0
    slots = torch.zeros(PICTURES, 4, dtype=torch.int64, device=DEVICE)
    places = torch.arange(4, device=DEVICE).expand(PICTURES, 4).contiguous()
    rest = torch.rand(PICTURES, 4, device=DEVICE), places, slots, anchors.points, anchors.strides, far
    leaf, twin = sides.clone().requires_grad_(), sides.double().requires_grad_()
    box_terms_fused(leaf, *rest)[0].backward()
    with plain_operations():
        box_terms(twin, *rest)[0].backward()
    assert float(twin.grad.norm()) > 0
    assert float((leaf.grad.double() - twin.grad).norm() / twin.grad.norm()) < GRADIENT_ERROR
