"""One activation for two consumers, whose gradients are added by the kernel that reads them.

Autograd adds the gradients of a tensor's consumers one after the other, with a kernel each that reads two tensors and
writes one. The backward pass of `norm_act` reads the sum in the next moment. So it takes the parts instead: the first
one comes through autograd, the others are left with it beforehand.
"""

from typing import Any

import torch
from torch import Tensor

from yolov9.ops.rows import channel_slice
from yolov9.ops.stream import current_stream


class GradientParts:
    """Further parts of the gradient of a result; of an autograd function that adds them to the one it is given."""

    def __init__(self, tensor: Tensor) -> None:
        self.stream = current_stream(tensor.device)
        self._parts: list[Tensor] = []

    def leave(self, parts: list[Tensor]) -> None:
        """Leaves parts, before the backward pass reaches the function."""
        self._parts += parts

    def take(self) -> list[Tensor]:
        """Returns all parts that were left, once."""
        parts, self._parts = self._parts, []
        return parts


def fan_out(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns an activation twice, for two consumers, which may again fan out theirs.

    Both are `x` itself unless an autograd function with `GradientParts` (attribute `parts` of its context) made it on
    the current stream.
    """
    parts = getattr(x.grad_fn, "parts", None) if torch.is_grad_enabled() else None
    if not isinstance(parts, GradientParts) or parts.stream != current_stream(x.device):
        return x, x
    first, second = _FanOut.apply(x, parts)
    # What can be made again counts as that for as long as the tensor itself lives (see `yolov9.ops.recompute`).
    first.fanned_out_of = second.fanned_out_of = x
    return first, second


class _FanOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, of_source: GradientParts) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.of_source, ctx.parts = of_source, GradientParts(x)
        # No views: autograd would follow them, and they are never written to.
        return channel_slice(x, 0, x.shape[1]), channel_slice(x, 0, x.shape[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None]:
        first, *others = [*(part for part in gradients if part is not None), *ctx.parts.take()] or [None]
        ctx.of_source.leave(others)
        return first, None
