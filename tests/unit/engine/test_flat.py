"""Parameters and gradients in long vectors."""

import copy

import pytest
import torch
from torch import nn

from yolov9.engine.ema import ModelEma
from yolov9.engine.flat import FlatParameters


def _model() -> nn.Sequential:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.Conv2d(8, 5, 1))
    return model.to(memory_format=torch.channels_last)


def _flat(model: nn.Module) -> FlatParameters:
    return FlatParameters(
        [[p for p in model.parameters() if p.dim() == 1], [p for p in model.parameters() if p.dim() == 4]]
    )


def _backward(model: nn.Module) -> None:
    torch.manual_seed(4)
    model(torch.rand(2, 3, 9, 9)).square().sum().backward()


def test_parameters_keep_values_and_memory_format() -> None:
    model = _model()
    before = [(p.detach().clone(), p.stride()) for p in model.parameters()]
    _flat(model)
    assert all(
        torch.equal(p, value) and p.stride() == stride
        for p, (value, stride) in zip(model.parameters(), before, strict=True)
    )


def test_backward_adds_to_the_vectors() -> None:
    model, twin = _model(), _model()
    flat = _flat(model)
    for _ in range(2):
        _backward(model)
    _backward(twin)
    assert all(torch.allclose(p.grad, 2 * q.grad) for p, q in zip(model.parameters(), twin.parameters(), strict=True))
    assert float(flat.gradients.norm()) == pytest.approx(
        2 * float(sum(q.grad.norm() ** 2 for q in twin.parameters()) ** 0.5)
    )
    flat.zero_gradients()
    assert not any(p.grad.any() for p in model.parameters())


def test_clipping_is_that_of_torch() -> None:
    model = _model()
    flat = _flat(model)
    _backward(model)
    twin = copy.deepcopy(model)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        q.grad = p.grad.clone()
    expected = torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
    assert float(flat.clip_gradients(0.5)) == pytest.approx(float(expected), rel=1e-6)
    assert all(
        torch.allclose(p.grad, q.grad, rtol=1e-6) for p, q in zip(model.parameters(), twin.parameters(), strict=True)
    )


def test_compute_copies_follow_the_weights_when_refreshed() -> None:
    model = _model()
    flat = _flat(model)
    flat.make_compute_copies(torch.bfloat16)
    weight = model[0].weight
    with torch.no_grad():
        weight.mul_(3)
    flat.refresh_compute_copies()
    assert torch.equal(weight.compute_copy, weight.to(torch.bfloat16))
    assert weight.compute_copy.stride() == weight.stride()


def test_the_average_of_flat_parameters_is_that_of_single_tensors() -> None:
    model = _model()
    model[2].weight.requires_grad_(False)
    twin = copy.deepcopy(model)
    flat = FlatParameters([[p for p in model.parameters() if p.requires_grad]])
    averages = ModelEma(model, flat=flat), ModelEma(twin)
    for _ in range(3):
        with torch.no_grad():
            for one, other in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
                if one.is_floating_point():
                    other.copy_(one.uniform_())
        for average in averages:
            average.update()
    for one, other in zip(*(average.model.state_dict().values() for average in averages), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=0)
