"""The first convolution of a network against float64: on a GPU, or on the CPU in Triton's interpreter."""

import os

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from yolov9.ops import convolution

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.gpu(interpreter=True)
# The result is rounded to bf16 on a card (one rounding: 2^-9 relative); sums for the weights stay float32 everywhere.
DEVICE, DTYPE, RESULT_ERROR = ("cpu", torch.float32, 2e-6) if INTERPRETED else ("cuda", torch.bfloat16, 3e-3)
GRADIENT_ERROR = 2e-6 if INTERPRETED else 2e-4
CASES = [
    # batch, channels, height, width, c_out, kernel, stride
    (2, 3, 32, 40, 32, 3, 2),
    (1, 3, 7, 131, 16, 3, 2),
    (2, 3, 5, 9, 24, 3, 1),
    (2, 4, 8, 6, 70, 3, 2),
    (3, 1, 9, 11, 8, 5, 2),
    (1, 3, 4, 4, 16, 1, 1),
]
if not INTERPRETED:
    CASES += [(64, 3, 640, 640, 32, 3, 2), (3, 3, 736, 416, 64, 3, 2)]


def _random(shape: tuple[int, ...], seed: int) -> Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.to(DEVICE, DTYPE).contiguous(memory_format=torch.channels_last)


def _relative(value: Tensor, reference: Tensor) -> float:
    return float((value.double() - reference).norm() / reference.norm())


@pytest.mark.parametrize(("batch", "channels", "height", "width", "c_out", "kernel", "stride"), CASES)
def test_result_and_weight_gradient_equal_float64(
    batch: int, channels: int, height: int, width: int, c_out: int, kernel: int, stride: int
) -> None:
    from yolov9.ops.picture_convolution_triton import add_weight_gradient_fused, convolve_picture_fused

    x, weight = _random((batch, channels, height, width), 0), _random((c_out, channels, kernel, kernel), 1)
    twin = weight.double().requires_grad_()
    expected = F.conv2d(x.double(), twin, stride=stride, padding=kernel // 2)
    y = convolve_picture_fused(x, weight, stride)
    assert y.shape == expected.shape
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert _relative(y, expected.detach()) < RESULT_ERROR

    dy = _random(tuple(y.shape), 2)
    expected.backward(dy.double())
    totals = [torch.zeros_like(weight, dtype=torch.float32) for _ in range(2)]
    for total in totals:
        add_weight_gradient_fused(x, dy, total, stride)
    assert _relative(totals[0], twin.grad) < GRADIENT_ERROR
    assert torch.equal(*totals)
    add_weight_gradient_fused(x, dy, totals[0], stride)
    torch.testing.assert_close(totals[0], 2 * totals[1])


def test_many_pixels_are_split_over_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    from yolov9.ops import picture_convolution_triton as kernels

    monkeypatch.setattr(kernels, "GRADIENT_PROGRAMS", 3)
    x, dy = _random((2, 3, 10, 140), 0), _random((2, 16, 5, 70), 2)
    twin = torch.zeros((16, 3, 3, 3), dtype=torch.float64, device=DEVICE, requires_grad=True)
    F.conv2d(x.double(), twin, stride=2, padding=1).backward(dy.double())
    total = torch.zeros_like(twin, dtype=torch.float32).contiguous(memory_format=torch.channels_last)
    kernels.add_weight_gradient_fused(x, dy, total, 2)
    assert _relative(total, twin.grad) < GRADIENT_ERROR


def test_a_convolution_of_pictures_runs_through_these_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    from yolov9.ops import picture_convolution_triton as kernels

    used = []
    for name in ("convolve_picture_fused", "add_weight_gradient_fused"):
        kernel = getattr(kernels, name)
        monkeypatch.setattr(kernels, name, lambda *args, run=kernel, name=name: (used.append(name), run(*args))[1])
    if INTERPRETED:
        monkeypatch.setattr(convolution, "picture_convolution_applies", lambda *_: True)
    module = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False).to(DEVICE, memory_format=torch.channels_last)
    module.weight.grad = torch.ones_like(module.weight)
    module.weight.compute_copy = module.weight.detach().to(DTYPE)
    x = _random((2, 3, 12, 20), 0)
    y = convolution.convolve(x, module)
    dy = _random(tuple(y.shape), 1)
    y.backward(dy.contiguous())
    twin = module.weight.compute_copy.double().requires_grad_()
    F.conv2d(x.double(), twin, stride=2, padding=1).backward(dy.double())
    assert used == ["convolve_picture_fused", "add_weight_gradient_fused"]
    assert _relative(module.weight.grad, 1 + twin.grad) < GRADIENT_ERROR
