"""Channels-last CUDA kernel (Triton) for `average_pool_2x2`; the plain twin is `torch.nn.functional.avg_pool2d`."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from yolov9.ops.norm_act_triton import tile_shape
from yolov9.ops.recompute import remember_from
from yolov9.ops.rows import as_rows


@triton.jit(do_not_specialize=["rows", "height", "width", "source_height", "source_width"])
def _pool_kernel(
    target, source, rows, columns, height, width, source_height, source_width, source_stride,
    SHIFT: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """target[h, w] = mean over a, b in {0, 1} of source[h + a - SHIFT, w + b - SHIFT], 0 outside the source.

    SHIFT 0 is the forward pass; SHIFT 1 with the gradient as source is the backward pass.
    """
    offs_p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    offs_c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (offs_p < rows)[:, None] & (offs_c < columns)[None, :]
    w = offs_p % width
    h = (offs_p // width) % height
    picture = (offs_p // (width * height)).to(tl.int64) * source_height
    total = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    for a in tl.static_range(2):
        for b in tl.static_range(2):
            row = h + (a - SHIFT)
            column = w + (b - SHIFT)
            there = (row >= 0) & (row < source_height) & (column >= 0) & (column < source_width)
            at = ((picture + row) * source_width + column) * source_stride
            mask = inside & there[:, None]
            total += tl.load(source + at[:, None] + offs_c[None, :], mask=mask, other=0.0).to(tl.float32)
    at_target = offs_p.to(tl.int64)[:, None] * columns + offs_c[None, :]
    tl.store(target + at_target, total * 0.25, mask=inside)


def _pool(source: Tensor, height: int, width: int, shift: int) -> Tensor:
    source, stride = as_rows(source)
    batch, columns, source_height, source_width = source.shape
    target = torch.empty(
        (batch, columns, height, width), dtype=source.dtype, device=source.device, memory_format=torch.channels_last
    )
    rows = batch * height * width
    block_p, block_c = tile_shape(columns)
    _pool_kernel[(triton.cdiv(rows, block_p), triton.cdiv(columns, block_c))](
        target, source, rows, columns, height, width, source_height, source_width, stride,
        SHIFT=shift, BLOCK_P=block_p, BLOCK_C=block_c,
    )  # fmt: skip
    return target


class _AveragePool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.height, ctx.width = x.shape[2:]
        return _pool(x, ctx.height - 1, ctx.width - 1, shift=0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _pool(gradients[0], ctx.height, ctx.width, shift=1)


def average_pool_fused(x: Tensor) -> Tensor:
    """The fused form of `yolov9.ops.average_pool.average_pool_2x2` for channels-last CUDA tensors."""
    result: Tensor = _AveragePool.apply(x)
    remember_from(result, [x], lambda source: _pool(source, source.shape[2] - 1, source.shape[3] - 1, shift=0))
    return result
