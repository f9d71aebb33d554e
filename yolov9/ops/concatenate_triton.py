"""Channels-last concatenation that enlarges parts on the way; the plain twin is in `yolov9.ops.concatenate`."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from yolov9.ops.recompute import remember_from
from yolov9.ops.resize_triton import enlarge_into, reduced
from yolov9.ops.rows import as_rows, channel_slice, empty_rows


def _filled(parts: Sequence[Tensor]) -> Tensor:
    largest = max(parts, key=lambda part: part.shape[2])
    result = empty_rows(largest, sum(part.shape[1] for part in parts))
    start = 0
    for part in parts:
        enlarge_into(channel_slice(result, start, part.shape[1]), part, result.shape[2] // part.shape[2])
        start += part.shape[1]
    return result


class _Concatenated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *parts: Tensor) -> Tensor:
        result = _filled(parts)
        ctx.parts = [(part.shape[1], result.shape[2] // part.shape[2]) for part in parts]
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        gradient, _ = as_rows(gradients[0])
        start, results = 0, []
        for width, factor in ctx.parts:
            part = channel_slice(gradient, start, width)
            results.append(part if factor == 1 else reduced(part, factor))
            start += width
        return tuple(results)


def concatenate_fused(parts: Sequence[Tensor]) -> Tensor:
    """The fused form of `yolov9.ops.concatenate.concatenate` for channels-last tensors and slices of such."""
    result: Tensor = _Concatenated.apply(*parts)
    remember_from(result, parts, lambda *again: _filled(again))
    return result
