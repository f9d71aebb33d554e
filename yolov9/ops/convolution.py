"""Convolution with weights in half precision that are kept beside the float32 ones.

Autocast converts every weight in every forward pass and every gradient back: two small kernels each. A parameter that
has a `compute_copy` (see `yolov9.engine.flat`) is used through that copy, and its gradient is added to `.grad` at once.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def convolve(x: Tensor, convolution: nn.Conv2d) -> Tensor:
    """Applies a convolution module to B x C x H x W; the same as calling it."""
    copy = getattr(convolution.weight, "compute_copy", None)
    if copy is None or convolution.bias is not None or not torch.is_grad_enabled() or x.dtype != copy.dtype:
        result: Tensor = convolution(x)
        return result
    shape = (convolution.stride, convolution.padding, convolution.groups)
    result = _Convolution.apply(x, convolution.weight, copy, *shape)
    return result


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, copy: Tensor, stride: Any, padding: Any, groups: int) -> Tensor:
        ctx.save_for_backward(x, copy)
        ctx.weight, ctx.shape = weight, (stride, padding, groups)
        return F.conv2d(x, copy, None, stride, padding, 1, groups)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, copy = ctx.saved_tensors
        stride, padding, groups = ctx.shape
        wanted = (ctx.needs_input_grad[0], ctx.needs_input_grad[1], False)
        dx, dw, _ = torch.ops.aten.convolution_backward(
            gradients[0], x, copy, None, stride, padding, (1, 1), False, (0, 0), groups, wanted
        )
        if dw is not None:
            ctx.weight.grad.add_(dw)
        return dx, None, None, None, None, None
