"""Fused CUDA kernels (Triton) for `norm_act`: training-mode batch normalisation, branch sum, SiLU, residual.

Tensors are channels-last and seen as matrices of P = B*H*W rows and C columns. Forward reads each convolution output
twice (statistics, then normalise and activate) and writes the result once. Backward keeps the convolution outputs
only, and reads them and the incoming gradient twice (sums, then the gradient). Sums are taken in float32 per block of
rows and added up in a fixed order, so results do not change from run to run.

Gradient of batch normalisation as in Ioffe & Szegedy, arXiv:1502.03167, section 3:
    dy = gamma * rstd * (g - mean(g) - xhat * mean(g * xhat)),  dgamma = sum(g * xhat),  dbeta = sum(g)
with g = dz * silu'(s) and silu'(s) = sig(s) * (1 + s * (1 - sig(s))).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from yolov9.ops.recompute import remember

TILE_ELEMENTS = 4096
"""Elements of one tile: 32 values a thread at 4 warps, which keeps the accumulators in registers."""
MAX_BLOCK_C = 128
"""Columns of a tile at the most: 256 bytes of one row, two full memory sectors lines."""
PROGRAMS_PER_SUM = 1056
"""Programs of a reduction: 8 for each of the 132 multiprocessors of a Hopper card; more only grow the second stage."""


@triton.jit
def _statistics_kernel(
    y, part_mean, part_m2, rows, columns, rows_per_split, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr
):
    split = tl.program_id(0)
    offs_c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    in_c = offs_c < columns
    first = split * rows_per_split
    last = tl.minimum(first + rows_per_split, rows)
    # Sums are taken about the first row of the block: a pivot near the mean keeps float32 sums of squares exact enough.
    pivot = tl.load(y + first.to(tl.int64) * columns + offs_c, mask=in_c, other=0.0).to(tl.float32)
    total = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    squares = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    for row in range(first, last, BLOCK_P):
        offs_p = row + tl.arange(0, BLOCK_P)
        inside = (offs_p < last)[:, None] & in_c[None, :]
        at = offs_p.to(tl.int64)[:, None] * columns + offs_c[None, :]
        value = tl.load(y + at, mask=inside, other=0.0).to(tl.float32) - pivot[None, :]
        value = tl.where(inside, value, 0.0)
        total += value
        squares += value * value
    count = (last - first).to(tl.float32)
    mean = tl.sum(total, 0) / count
    m2 = tl.sum(squares, 0) - mean * mean * count
    tl.store(part_mean + split * columns + offs_c, mean + pivot, mask=in_c)
    tl.store(part_m2 + split * columns + offs_c, m2, mask=in_c)


@triton.jit
def _merge_kernel(
    part_mean, part_m2, mean_out, rstd_out, running_mean, running_var,
    rows, columns, splits, rows_per_split, momentum, eps,
    BLOCK_S: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    offs_c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    in_c = offs_c < columns
    weighted = tl.zeros((BLOCK_S, BLOCK_C), tl.float32)
    for start in range(0, splits, BLOCK_S):
        offs_s = start + tl.arange(0, BLOCK_S)
        inside = (offs_s < splits)[:, None] & in_c[None, :]
        count = tl.minimum(rows - offs_s * rows_per_split, rows_per_split).to(tl.float32)[:, None]
        block_mean = tl.load(part_mean + offs_s[:, None] * columns + offs_c[None, :], mask=inside, other=0.0)
        weighted += tl.where(inside, block_mean * count, 0.0)
    total = rows.to(tl.float32)
    mean = tl.sum(weighted, 0) / total
    spread = tl.zeros((BLOCK_S, BLOCK_C), tl.float32)
    for start in range(0, splits, BLOCK_S):
        offs_s = start + tl.arange(0, BLOCK_S)
        inside = (offs_s < splits)[:, None] & in_c[None, :]
        count = tl.minimum(rows - offs_s * rows_per_split, rows_per_split).to(tl.float32)[:, None]
        at = offs_s[:, None] * columns + offs_c[None, :]
        off = tl.load(part_mean + at, mask=inside, other=0.0) - mean[None, :]
        spread += tl.where(inside, tl.load(part_m2 + at, mask=inside, other=0.0) + count * off * off, 0.0)
    m2 = tl.sum(spread, 0)
    tl.store(mean_out + offs_c, mean, mask=in_c)
    tl.store(rstd_out + offs_c, 1.0 / tl.sqrt(m2 / total + eps), mask=in_c)
    old_mean = tl.load(running_mean + offs_c, mask=in_c, other=0.0)
    old_var = tl.load(running_var + offs_c, mask=in_c, other=0.0)
    tl.store(running_mean + offs_c, old_mean + momentum * (mean - old_mean), mask=in_c)
    unbiased = m2 / tl.maximum(total - 1.0, 1.0)
    tl.store(running_var + offs_c, old_var + momentum * (unbiased - old_var), mask=in_c)


@triton.jit
def _column(pointer, offs_c, in_c):
    return tl.load(pointer + offs_c, mask=in_c, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _forward_kernel(
    z, residual, y1, mean1, rstd1, gamma1, beta1, y2, mean2, rstd2, gamma2, beta2, rows, columns, residual_stride,
    BRANCHES: tl.constexpr, HAS_RESIDUAL: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    offs_p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    offs_c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    in_c = offs_c < columns
    inside = (offs_p < rows)[:, None] & in_c[None, :]
    long_p = offs_p.to(tl.int64)[:, None]
    at = long_p * columns + offs_c[None, :]
    hat1 = (tl.load(y1 + at, mask=inside, other=0.0).to(tl.float32) - _column(mean1, offs_c, in_c)) * _column(
        rstd1, offs_c, in_c
    )
    s = hat1 * _column(gamma1, offs_c, in_c) + _column(beta1, offs_c, in_c)
    if BRANCHES == 2:
        hat2 = (tl.load(y2 + at, mask=inside, other=0.0).to(tl.float32) - _column(mean2, offs_c, in_c)) * _column(
            rstd2, offs_c, in_c
        )
        s += hat2 * _column(gamma2, offs_c, in_c) + _column(beta2, offs_c, in_c)
    out = s * tl.sigmoid(s)
    if HAS_RESIDUAL:
        at_residual = long_p * residual_stride + offs_c[None, :]
        out += tl.load(residual + at_residual, mask=inside, other=0.0).to(tl.float32)
    tl.store(z + at, out, mask=inside)


@triton.jit
def _backward_sums_kernel(
    part, dz, y1, mean1, rstd1, gamma1, beta1, y2, mean2, rstd2, gamma2, beta2,
    rows, columns, rows_per_split, dz_stride,
    BRANCHES: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    split = tl.program_id(0)
    offs_c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    in_c = offs_c < columns
    first = split * rows_per_split
    last = tl.minimum(first + rows_per_split, rows)
    m1, r1 = _column(mean1, offs_c, in_c), _column(rstd1, offs_c, in_c)
    w1, b1 = _column(gamma1, offs_c, in_c), _column(beta1, offs_c, in_c)
    sum_g = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    sum_1 = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    if BRANCHES == 2:
        m2, r2 = _column(mean2, offs_c, in_c), _column(rstd2, offs_c, in_c)
        w2, b2 = _column(gamma2, offs_c, in_c), _column(beta2, offs_c, in_c)
        sum_2 = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    for row in range(first, last, BLOCK_P):
        offs_p = row + tl.arange(0, BLOCK_P)
        inside = (offs_p < last)[:, None] & in_c[None, :]
        long_p = offs_p.to(tl.int64)[:, None]
        at = long_p * columns + offs_c[None, :]
        hat1 = (tl.load(y1 + at, mask=inside, other=0.0).to(tl.float32) - m1) * r1
        s = hat1 * w1 + b1
        if BRANCHES == 2:
            hat2 = (tl.load(y2 + at, mask=inside, other=0.0).to(tl.float32) - m2) * r2
            s += hat2 * w2 + b2
        sig = tl.sigmoid(s)
        # Rows outside load dz = 0, so they add nothing to the sums.
        g = tl.load(dz + long_p * dz_stride + offs_c[None, :], mask=inside, other=0.0).to(tl.float32)
        g = g * sig * (1.0 + s * (1.0 - sig))
        sum_g += g
        sum_1 += g * hat1
        if BRANCHES == 2:
            sum_2 += g * hat2
    base = part + split * (BRANCHES + 1) * columns + offs_c
    tl.store(base, tl.sum(sum_g, 0), mask=in_c)
    tl.store(base + columns, tl.sum(sum_1, 0), mask=in_c)
    if BRANCHES == 2:
        tl.store(base + 2 * columns, tl.sum(sum_2, 0), mask=in_c)


@triton.jit
def _backward_kernel(
    dy1, dy2, dz, sums, y1, mean1, rstd1, gamma1, beta1, y2, mean2, rstd2, gamma2, beta2,
    rows, columns, dz_stride,
    BRANCHES: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    offs_p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    offs_c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    in_c = offs_c < columns
    inside = (offs_p < rows)[:, None] & in_c[None, :]
    long_p = offs_p.to(tl.int64)[:, None]
    at = long_p * columns + offs_c[None, :]
    per_row = 1.0 / rows.to(tl.float32)
    r1, w1 = _column(rstd1, offs_c, in_c), _column(gamma1, offs_c, in_c)
    hat1 = (tl.load(y1 + at, mask=inside, other=0.0).to(tl.float32) - _column(mean1, offs_c, in_c)) * r1
    s = hat1 * w1 + _column(beta1, offs_c, in_c)
    if BRANCHES == 2:
        r2, w2 = _column(rstd2, offs_c, in_c), _column(gamma2, offs_c, in_c)
        hat2 = (tl.load(y2 + at, mask=inside, other=0.0).to(tl.float32) - _column(mean2, offs_c, in_c)) * r2
        s += hat2 * w2 + _column(beta2, offs_c, in_c)
    sig = tl.sigmoid(s)
    g = tl.load(dz + long_p * dz_stride + offs_c[None, :], mask=inside, other=0.0).to(tl.float32)
    g = g * sig * (1.0 + s * (1.0 - sig))
    centred = g - _column(sums, offs_c, in_c) * per_row
    mean_1 = _column(sums + columns, offs_c, in_c) * per_row
    tl.store(dy1 + at, w1 * r1 * (centred - hat1 * mean_1), mask=inside)
    if BRANCHES == 2:
        mean_2 = _column(sums + 2 * columns, offs_c, in_c) * per_row
        tl.store(dy2 + at, w2 * r2 * (centred - hat2 * mean_2), mask=inside)


def tile_shape(columns: int) -> tuple[int, int]:
    """Returns rows and columns of the tile that one program works on, for a matrix with so many columns."""
    block_c = min(triton.next_power_of_2(columns), MAX_BLOCK_C)
    return TILE_ELEMENTS // block_c, block_c


def _splits(rows: int, columns: int, block_p: int, block_c: int) -> tuple[int, int]:
    wanted = max(1, PROGRAMS_PER_SUM // triton.cdiv(columns, block_c))
    rows_per_split = triton.cdiv(triton.cdiv(rows, wanted), block_p) * block_p
    return triton.cdiv(rows, rows_per_split), rows_per_split


def row_stride(tensor: Tensor) -> int | None:
    """Returns the distance in elements between neighbouring pixels of a channels-last tensor or of a channel slice of
    one; None when the tensor (B x C x H x W) is laid out in another way."""
    batch, channels, height, width = tensor.shape
    stride = tensor.stride(3) if width > 1 else (tensor.stride(2) if height > 1 else tensor.stride(0))
    if batch * height * width == 1:
        stride = channels
    expected = ((batch, height * width * stride), (channels, 1), (height, width * stride), (width, stride))
    same = all(size == 1 or tensor.stride(axis) == step for axis, (size, step) in enumerate(expected))
    return stride if same and stride >= channels else None


def as_rows(tensor: Tensor) -> tuple[Tensor, int]:
    """Returns the tensor and its row stride, copied to channels-last only when it has none."""
    stride = row_stride(tensor)
    if stride is None:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
        stride = tensor.shape[1]
    return tensor, stride


def _batch_statistics(y: Tensor, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    batch, columns, height, width = y.shape
    rows = batch * height * width
    block_p, block_c = tile_shape(columns)
    splits, rows_per_split = _splits(rows, columns, block_p, block_c)
    blocks_c = triton.cdiv(columns, block_c)
    part = torch.empty((2, splits, columns), device=y.device, dtype=torch.float32)
    _statistics_kernel[(splits, blocks_c)](
        y, part[0], part[1], rows, columns, rows_per_split, BLOCK_P=block_p, BLOCK_C=block_c
    )
    out = torch.empty((2, columns), device=y.device, dtype=torch.float32)
    narrow = min(block_c, 16)
    _merge_kernel[(triton.cdiv(columns, narrow),)](
        part[0], part[1], out[0], out[1], norm.running_mean, norm.running_var,
        rows, columns, splits, rows_per_split, norm.momentum, norm.eps, BLOCK_S=256, BLOCK_C=narrow,
    )  # fmt: skip
    return out[0], out[1]


@dataclass(frozen=True)
class _Branch:
    """One convolution output with all that normalises it; columns are float32 vectors of length C."""

    y: Tensor
    mean: Tensor
    rstd: Tensor
    gamma: Tensor
    beta: Tensor

    def arguments(self) -> tuple[Tensor, ...]:
        return self.y, self.mean, self.rstd, self.gamma, self.beta


def _activate(branches: Sequence[_Branch], residual: Tensor | None) -> Tensor:
    y = branches[0].y
    columns = y.shape[1]
    rows = y.numel() // columns
    z = torch.empty_like(y, memory_format=torch.channels_last)
    block_p, block_c = tile_shape(columns)
    source, stride = as_rows(residual) if residual is not None else (y, columns)
    _forward_kernel[(triton.cdiv(rows, block_p), triton.cdiv(columns, block_c))](
        z, source, *branches[0].arguments(), *branches[-1].arguments(), rows, columns, stride,
        BRANCHES=len(branches), HAS_RESIDUAL=residual is not None, BLOCK_P=block_p, BLOCK_C=block_c,
    )  # fmt: skip
    return z


class _NormAct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, residual: Tensor | None, statistics: Sequence[tuple[Tensor, Tensor]], *flat: Tensor
    ) -> Tensor:
        parts = zip(flat[0::3], statistics, flat[1::3], flat[2::3], strict=True)
        branches = [_Branch(y, *stats, gamma, beta) for y, stats, gamma, beta in parts]
        ctx.save_for_backward(*(tensor for branch in branches for tensor in branch.arguments()))
        ctx.has_residual = residual is not None
        return _activate(branches, residual)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        branches = [_Branch(*saved[start : start + 5]) for start in range(0, len(saved), 5)]
        y = branches[0].y
        columns = y.shape[1]
        rows = y.numel() // columns
        dz, stride = as_rows(gradients[0])
        block_p, block_c = tile_shape(columns)
        blocks_c = triton.cdiv(columns, block_c)
        splits, rows_per_split = _splits(rows, columns, block_p, block_c)
        part = torch.empty((splits, len(branches) + 1, columns), device=y.device, dtype=torch.float32)
        both = (*branches[0].arguments(), *branches[-1].arguments())
        constants = {"BRANCHES": len(branches), "BLOCK_P": block_p, "BLOCK_C": block_c}
        _backward_sums_kernel[(splits, blocks_c)](part, dz, *both, rows, columns, rows_per_split, stride, **constants)
        sums = part.sum(0)
        outputs = [torch.empty_like(branch.y, memory_format=torch.channels_last) for branch in branches]
        _backward_kernel[(triton.cdiv(rows, block_p), blocks_c)](
            outputs[0], outputs[-1], dz, sums, *both, rows, columns, stride, **constants
        )
        flat: list[Tensor | None] = [gradients[0] if ctx.has_residual else None, None]
        for index, output in enumerate(outputs):
            flat += [output, sums[index + 1], sums[0]]
        return tuple(flat)


def norm_act_fused(
    branches: Sequence[Tensor], norms: Sequence[nn.BatchNorm2d], residual: Tensor | None = None
) -> Tensor:
    """The fused form of `yolov9.ops.norm_act.norm_act`.

    Args:
        branches: one or two channels-last CUDA tensors B x C x H x W, bf16 or fp16.
        norms: their batch normalisations in training mode, parameters and buffers in float32.
        residual: None, or B x C x H x W.

    Returns:
        Channels-last tensor in the dtype of the branches. `num_batches_tracked` is left alone: the training step
        counts all of them at once.
    """
    statistics = [_batch_statistics(y.detach(), norm) for y, norm in zip(branches, norms, strict=True)]
    flat = [tensor for y, norm in zip(branches, norms, strict=True) for tensor in (y, norm.weight, norm.bias)]
    result: Tensor = _NormAct.apply(residual, statistics, *flat)  # type: ignore[no-untyped-call]
    if residual is None:
        kept = [
            _Branch(y.detach(), *stats, norm.weight.detach(), norm.bias.detach())
            for y, stats, norm in zip(branches, statistics, norms, strict=True)
        ]
        remember(result, lambda: _activate(kept, None))
    return result
