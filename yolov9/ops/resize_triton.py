"""Channels-last CUDA kernels (Triton) for enlarging by a whole factor; the plain twin is `F.interpolate`."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from yolov9.ops.norm_act_triton import tile_shape
from yolov9.ops.recompute import remember_from
from yolov9.ops.rows import as_rows


@triton.jit(do_not_specialize=["rows", "height", "width"])
def _enlarge_kernel(
    target, source, rows, columns, height, width, target_stride, source_stride,
    FACTOR: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """target[h, w] = source[h // FACTOR, w // FACTOR]; `height` and `width` are those of the target."""
    offs_p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    offs_c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (offs_p < rows)[:, None] & (offs_c < columns)[None, :]
    w = (offs_p % width) // FACTOR
    h = (offs_p // width) // FACTOR  # pictures are whole multiples of FACTOR rows, so they need no part of their own
    at = (h.to(tl.int64) * (width // FACTOR) + w) * source_stride
    value = tl.load(source + at[:, None] + offs_c[None, :], mask=inside)
    tl.store(target + offs_p.to(tl.int64)[:, None] * target_stride + offs_c[None, :], value, mask=inside)


@triton.jit(do_not_specialize=["rows", "width"])
def _reduce_kernel(
    target, source, rows, columns, width, source_stride,
    FACTOR: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """target[h, w] = sum of source over the FACTOR x FACTOR pixels made from it; `width` is that of the target."""
    offs_p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    offs_c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (offs_p < rows)[:, None] & (offs_c < columns)[None, :]
    first = (offs_p // width).to(tl.int64) * FACTOR * (width * FACTOR) + (offs_p % width) * FACTOR
    total = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    for a in range(FACTOR):  # unrolled as well, a factor of 16 takes a minute to compile
        for b in tl.static_range(FACTOR):
            at = (first + a * (width * FACTOR) + b) * source_stride
            total += tl.load(source + at[:, None] + offs_c[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.store(target + offs_p.to(tl.int64)[:, None] * columns + offs_c[None, :], total, mask=inside)


def enlarge_into(target: Tensor, x: Tensor, factor: int) -> None:
    """Writes B x C x H x W, each pixel `factor` times along both sides, to channels-last memory or a slice of it."""
    source, source_stride = as_rows(x)
    _, target_stride = as_rows(target)
    batch, columns, height, width = target.shape
    rows = batch * height * width
    block_p, block_c = tile_shape(columns)
    _enlarge_kernel[(triton.cdiv(rows, block_p), triton.cdiv(columns, block_c))](
        target, source, rows, columns, height, width, target_stride, source_stride,
        FACTOR=factor, BLOCK_P=block_p, BLOCK_C=block_c,
    )  # fmt: skip


def reduced(gradient: Tensor, factor: int) -> Tensor:
    """Gradient of what was enlarged: sums over factor x factor pixels of channels-last memory or a slice of it."""
    source, stride = as_rows(gradient)
    batch, columns, height, width = source.shape
    shape = (batch, columns, height // factor, width // factor)
    target = torch.empty(shape, dtype=source.dtype, device=source.device, memory_format=torch.channels_last)
    rows = batch * shape[2] * shape[3]
    block_p, block_c = tile_shape(columns)
    _reduce_kernel[(triton.cdiv(rows, block_p), triton.cdiv(columns, block_c))](
        target, source, rows, columns, shape[3], stride, FACTOR=factor, BLOCK_P=block_p, BLOCK_C=block_c,
    )  # fmt: skip
    return target


def _enlarge(x: Tensor, factor: int) -> Tensor:
    batch, columns, height, width = x.shape
    shape = (batch, columns, height * factor, width * factor)
    target = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    enlarge_into(target, x, factor)
    return target


class _Enlarge(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: int) -> Tensor:
        ctx.factor = factor
        return _enlarge(x, factor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return reduced(gradients[0], ctx.factor), None


def enlarge_fused(x: Tensor, factor: int) -> Tensor:
    """Repeats each pixel of B x C x H x W `factor` times along both sides; see `yolov9.ops.resize.resize_nearest`."""
    result: Tensor = _Enlarge.apply(x, factor)
    remember_from(result, [x], lambda source: _enlarge(source, factor))
    return result
