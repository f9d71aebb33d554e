"""Fused kernels against float64 twins on random inputs."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from yolov9.ops.average_pool import average_pool_2x2
from yolov9.ops.norm_act import norm_act, norm_act_plain

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
# bf16 keeps 8 bits of fraction, and one rounding is 2^-9 relative; the figure for gradients comes from the kernels'
# own arithmetic, so outputs are compared in the norm of the whole tensor.
RELATIVE_ERROR = 3e-3
SHAPES = [(4, 16, 40, 40), (2, 64, 33, 57), (3, 184, 20, 20), (2, 480, 13, 7), (64, 32, 96, 96)]


def _random(shape: tuple[int, ...], seed: int, scale: float = 1.0, shift: float = 0.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator) * scale + shift
    return values.to("cuda", torch.bfloat16).contiguous(memory_format=torch.channels_last)


def _norm(channels: int, seed: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.03)
    generator = torch.Generator().manual_seed(seed)
    norm.weight.data.normal_(1, 0.3, generator=generator)
    norm.bias.data.normal_(0, 0.3, generator=generator)
    return norm.cuda()


def _relative(value: torch.Tensor, reference: torch.Tensor) -> float:
    return float(((value.double() - reference).norm() / reference.norm()).detach())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("branches", "residual"), [(1, False), (2, False), (1, True)])
def test_fused_norm_act_equals_the_float64_twin(shape: tuple[int, ...], branches: int, residual: bool) -> None:
    ys = [_random(shape, seed, scale=2.0, shift=0.7).requires_grad_() for seed in range(branches)]
    norms = [_norm(shape[1], seed) for seed in range(branches)]
    extra = _random(shape, 7).requires_grad_() if residual else None
    twins = [copy.deepcopy(norm).double() for norm in norms]
    twin_ys = [y.detach().double().requires_grad_() for y in ys]
    twin_extra = extra.detach().double().requires_grad_() if extra is not None else None
    gradient = _random(shape, 11)

    out = norm_act(ys, norms, extra)
    out.backward(gradient)
    expected = norm_act_plain(twin_ys, twins, twin_extra)
    expected.backward(gradient.double())

    pairs = [(out, expected)]
    pairs += [(y.grad, twin.grad) for y, twin in zip(ys, twin_ys, strict=True)]
    for norm, twin in zip(norms, twins, strict=True):
        pairs += [(norm.weight.grad, twin.weight.grad), (norm.bias.grad, twin.bias.grad)]
        pairs += [(norm.running_mean, twin.running_mean), (norm.running_var, twin.running_var)]
    if extra is not None:
        pairs.append((extra.grad, twin_extra.grad))
    assert [_relative(value, reference) < RELATIVE_ERROR for value, reference in pairs] == [True] * len(pairs)


def test_a_channel_slice_as_gradient_gives_the_same_as_its_copy() -> None:
    y = _random((2, 64, 24, 24), 1)
    wide = _random((2, 160, 24, 24), 2)
    results = []
    for gradient in (wide[:, 32:96], wide[:, 32:96].clone(memory_format=torch.channels_last)):
        leaf = y.detach().clone(memory_format=torch.channels_last).requires_grad_()
        norm_act([leaf], [_norm(64, 3)]).backward(gradient)
        results.append(leaf.grad)
    assert torch.equal(*results)


@pytest.mark.parametrize("shape", SHAPES)
def test_fused_average_pool_equals_the_float64_twin(shape: tuple[int, ...]) -> None:
    x = _random(shape, 5).requires_grad_()
    twin = x.detach().double().requires_grad_()
    out, expected = average_pool_2x2(x), F.avg_pool2d(twin, 2, 1)
    gradient = _random(tuple(expected.shape), 6)
    out.backward(gradient)
    expected.backward(gradient.double())
    assert _relative(out, expected) < RELATIVE_ERROR
    assert _relative(x.grad, twin.grad) < RELATIVE_ERROR
