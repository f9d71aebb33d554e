"""The fused parts of the loss against float64 twins: on a GPU, or on the CPU in Triton's interpreter."""

import os

import pytest
import torch
from torch.nn.functional import softplus

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


def test_side_distances_equal_the_expectation_in_float64() -> None:
    from yolov9.loss.side_distances_triton import side_distances_fused

    sides = (torch.randn(PICTURES, ANCHORS, 4, 16, generator=torch.Generator().manual_seed(1)) * 3).to(DEVICE, DTYPE)
    expected = (sides.double().softmax(-1) * torch.arange(16, device=DEVICE)).sum(-1)
    assert torch.allclose(side_distances_fused(sides).double(), expected, rtol=1e-5, atol=1e-5)
