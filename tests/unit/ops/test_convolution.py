"""Convolution through a copy of the weights."""

import torch
from torch import nn

from yolov9.ops.convolution import convolve


def _gradients(through_copy: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    convolution = nn.Conv2d(6, 8, 3, stride=2, padding=1, groups=2, bias=False)
    weight = convolution.weight
    weight.grad = torch.ones_like(weight)
    if through_copy:
        weight.compute_copy = weight.detach().clone()
    x = torch.rand(2, 6, 9, 9, requires_grad=True)
    y = convolve(x, convolution)
    y.square().sum().backward()
    assert x.grad is not None
    return y.detach(), x.grad, weight.grad


def test_a_copy_gives_the_result_and_adds_the_gradient_to_the_weight() -> None:
    for a, b in zip(_gradients(True), _gradients(False), strict=True):
        torch.testing.assert_close(a, b)


def test_without_gradients_the_module_itself_is_applied() -> None:
    convolution = nn.Conv2d(3, 4, 1, bias=False)
    convolution.weight.compute_copy = torch.zeros_like(convolution.weight)
    x = torch.rand(1, 3, 2, 2)
    with torch.no_grad():
        assert torch.equal(convolve(x, convolution), convolution(x))
