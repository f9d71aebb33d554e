"""Channels-last CUDA kernels (Triton) for `max_pool`; the plain twin is `torch.nn.functional.max_pool2d`.

Forward notes which pixel of the neighbourhood was the largest, the first one among equals as in PyTorch; backward
gathers, so that gradients are added up in a fixed order.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from yolov9.ops.join import Join
from yolov9.ops.norm_act_triton import tile_shape
from yolov9.ops.rows import as_rows, empty_rows

TILE = 1024
"""Elements of a tile: the maps are small, so many small programs fill the card."""


@triton.jit(do_not_specialize=["rows", "height", "width", "source_height", "source_width"])
def _forward_kernel(
    target, choice, source, rows, columns, height, width, source_height, source_width, target_stride, source_stride,
    KERNEL: tl.constexpr, STEP: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    offs_p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    offs_c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (offs_p < rows)[:, None] & (offs_c < columns)[None, :]
    w = (offs_p % width) * STEP - KERNEL // 2
    h = ((offs_p // width) % height) * STEP - KERNEL // 2
    picture = (offs_p // (width * height)).to(tl.int64) * source_height
    best = tl.full((BLOCK_P, BLOCK_C), float("-inf"), tl.float32)
    which = tl.zeros((BLOCK_P, BLOCK_C), tl.int32)
    for a in tl.static_range(KERNEL):
        for b in tl.static_range(KERNEL):
            there = (h + a >= 0) & (h + a < source_height) & (w + b >= 0) & (w + b < source_width)
            at = ((picture + h + a) * source_width + w + b) * source_stride
            mask = inside & there[:, None]
            value = tl.load(source + at[:, None] + offs_c[None, :], mask=mask, other=float("-inf")).to(tl.float32)
            better = (value > best) | (value != value)
            best = tl.where(better, value, best)
            which = tl.where(better, a * KERNEL + b, which)
    long_p = offs_p.to(tl.int64)[:, None]
    tl.store(target + long_p * target_stride + offs_c[None, :], best, mask=inside)
    tl.store(choice + long_p * columns + offs_c[None, :], which.to(tl.uint8), mask=inside)


@triton.jit(do_not_specialize=["rows", "height", "width", "source_height", "source_width"])
def _backward_kernel(
    gradient, choice, incoming, rows, columns, height, width, source_height, source_width, incoming_stride,
    KERNEL: tl.constexpr, STEP: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Rows are those of the input of the pooling; `height` and `width` are the size of its output."""
    offs_p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    offs_c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (offs_p < rows)[:, None] & (offs_c < columns)[None, :]
    w = offs_p % source_width + KERNEL // 2
    h = (offs_p // source_width) % source_height + KERNEL // 2
    picture = (offs_p // (source_width * source_height)).to(tl.int64) * height
    total = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    for a in tl.static_range(KERNEL):
        for b in tl.static_range(KERNEL):
            row = (h - a) // STEP
            column = (w - b) // STEP
            there = (h >= a) & (w >= b) & (row < height) & (column < width)
            there = there & (row * STEP == h - a) & (column * STEP == w - b)
            at = (picture + row) * width + column
            mask = inside & there[:, None]
            which = tl.load(choice + at[:, None] * columns + offs_c[None, :], mask=mask, other=255).to(tl.int32)
            chosen = mask & (which == a * KERNEL + b)
            g = tl.load(incoming + at[:, None] * incoming_stride + offs_c[None, :], mask=chosen, other=0.0)
            total += g.to(tl.float32)
    tl.store(gradient + offs_p.to(tl.int64)[:, None] * columns + offs_c[None, :], total, mask=inside)


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, slot: list[Tensor], kernel: int, step: int) -> Tensor:
        target = slot[0]
        batch, columns, height, width = target.shape
        source, source_stride = as_rows(x)
        _, target_stride = as_rows(target)
        choice = torch.empty((batch, height, width, columns), dtype=torch.uint8, device=x.device)
        block_p, block_c = tile_shape(columns, TILE)
        rows = batch * height * width
        _forward_kernel[(triton.cdiv(rows, block_p), triton.cdiv(columns, block_c))](
            target, choice, source, rows, columns, height, width, x.shape[2], x.shape[3], target_stride, source_stride,
            KERNEL=kernel, STEP=step, BLOCK_P=block_p, BLOCK_C=block_c,
        )  # fmt: skip
        ctx.save_for_backward(choice)
        ctx.source_size, ctx.kernel, ctx.step = x.shape[2:], kernel, step
        return target

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (choice,) = ctx.saved_tensors
        incoming, stride = as_rows(gradients[0])
        batch, columns, height, width = incoming.shape
        source_height, source_width = ctx.source_size
        gradient = empty_rows(incoming.new_empty((batch, 0, source_height, source_width)), columns)
        block_p, block_c = tile_shape(columns, TILE)
        rows = batch * source_height * source_width
        _backward_kernel[(triton.cdiv(rows, block_p), triton.cdiv(columns, block_c))](
            gradient, choice, incoming, rows, columns, height, width, source_height, source_width, stride,
            KERNEL=ctx.kernel, STEP=ctx.step, BLOCK_P=block_p, BLOCK_C=block_c,
        )  # fmt: skip
        return gradient, None, None, None


def max_pool_fused(x: Tensor, kernel: int, stride: int = 1, join: Join | None = None) -> Tensor:
    """The fused form of `yolov9.ops.max_pool.max_pool` for CUDA tensors whose channels lie side by side."""
    size = [(side + stride - 1) // stride for side in x.shape[2:]]
    like = x.new_empty((x.shape[0], 0, *size))  # only its sizes count
    target = join.reserve(like, x.shape[1]) if join is not None else empty_rows(like, x.shape[1])
    result: Tensor = _MaxPool.apply(x, [target], kernel, stride)
    if join is not None:
        join.put_reserved(result, None)
    return result
