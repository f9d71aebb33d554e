"""Convolution with weights in half precision that are kept beside the float32 ones.

Autocast converts every weight in every forward pass and every gradient back: two small kernels each. A parameter that
has a `compute_copy` (see `yolov9.engine.flat`) is used through that copy. Its gradient is added to `.grad` at once, or
with all others at the end of a pass that uses lanes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from yolov9.ops.column_sums import add_column_sums
from yolov9.ops.half_gradients import add_at_once
from yolov9.ops.lanes import active_lanes
from yolov9.ops.picture_convolution import add_picture_gradient, convolve_picture, picture_convolution_applies


def convolve(x: Tensor, convolution: nn.Conv2d) -> Tensor:
    """Applies a convolution module to B x C x H x W; the same as calling it."""
    copy = getattr(convolution.weight, "compute_copy", None)
    if copy is None or not torch.is_grad_enabled() or x.dtype != copy.dtype:
        result: Tensor = nn.Conv2d.forward(convolution, x)
        return result
    shape = (convolution.stride, convolution.padding, convolution.groups)
    result = _Convolution.apply(x, convolution.weight, convolution.bias, copy, *shape)
    return result


class OutputConv(nn.Conv2d):
    """A convolution with a bias and no normalisation, as the last one of a head's branch."""

    def forward(self, x: Tensor) -> Tensor:
        """B x c_in x H x W -> B x c_out x H x W."""
        return convolve(x, self)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, copy: Tensor, stride: Any, padding: Any, groups: int
    ) -> Tensor:
        ctx.save_for_backward(x, copy)
        ctx.weight, ctx.bias, ctx.shape, ctx.lanes = weight, bias, (stride, padding, groups), active_lanes()
        ctx.of_picture = picture_convolution_applies(x, copy, bias, stride, padding, groups)
        if ctx.of_picture:
            return convolve_picture(x, copy, stride[0])
        return F.conv2d(x, copy, None if bias is None else bias.to(copy.dtype), stride, padding, 1, groups)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, copy = ctx.saved_tensors
        gradient = gradients[0]
        if not (gradient.is_contiguous() or gradient.is_contiguous(memory_format=torch.channels_last)):
            gradient = gradient.contiguous(memory_format=torch.channels_last)  # once, not for each of the two below
        if ctx.needs_input_grad[1]:
            put = add_at_once if ctx.lanes is None else ctx.lanes.half_gradients.put
            work = partial(_add_weight_gradient, gradient, x, copy, ctx.weight, ctx.bias, ctx.shape, put)
            if ctx.of_picture:
                work = partial(add_picture_gradient, x, gradient, ctx.weight, ctx.shape[0][0])
            if ctx.lanes is None:
                work()
            else:
                ctx.lanes.run_behind(work, (gradient, x))
        dx = _convolution_backward(gradient, x, copy, ctx.shape, (True, False))[0] if ctx.needs_input_grad[0] else None
        return dx, None, None, None, None, None, None


def _convolution_backward(
    gradient: Tensor, x: Tensor, copy: Tensor, shape: tuple[Any, Any, int], wanted: tuple[bool, bool]
) -> tuple[Tensor, Tensor]:
    """Gradients of input and weight; only the wanted ones are computed."""
    stride, padding, groups = shape
    dx, dw, _ = torch.ops.aten.convolution_backward(
        gradient, x, copy, None, stride, padding, (1, 1), False, (0, 0), groups, (*wanted, False)
    )
    return dx, dw


def _add_weight_gradient(
    gradient: Tensor,
    x: Tensor,
    copy: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    shape: tuple[Any, Any, int],
    put: Callable[[Tensor, Tensor], None],
) -> None:
    put(_convolution_backward(gradient, x, copy, shape, (False, True))[1], weight)
    if bias is not None and bias.grad is not None:
        add_column_sums(gradient, bias.grad)
