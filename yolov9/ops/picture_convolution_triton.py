"""Kernels (Triton) for `picture_convolution`: implicit matrix products that read pictures and gradients once.

A patch is what one output pixel sees: KERNEL * KERNEL * C values in the order of channels-last weights (row, column,
channel). Patches are gathered as tiles of BLOCK_K values by BLOCK_P pixels. The pixels of a tile are neighbours in one
line of the output, so that nothing is divided for each of them. With f for patch and n for output channel:

    y[p, n] = sum_f patch[f, p] * w[n, f],    dw[n, f] = sum_p dy[p, n] * patch[f, p]

which are the implicit matrix products of Chetlur et al., arXiv:1410.0759, section 3.3. Sums are taken in float32. Those
of the weight gradient are split over programs and added up in a fixed order: results do not change from run to run.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from yolov9.ops.column_sums_triton import add_column_sums_fused
from yolov9.ops.rows import empty_rows

BLOCK_P = 64
"""Pixels of a tile: one a thread, and lines of 320, the half of 640, are cut without a rest."""
WARPS = 2
MAX_BLOCK_N = 64
"""Output channels of a tile at the most."""
LEAST_DOT = 16
"""Side of the smallest tiles that tl.dot multiplies."""
GRADIENT_PROGRAMS = 1056
"""Programs of the weight gradient at the most: 8 for each of the 132 multiprocessors of a Hopper card. Each keeps sums
for all weights, 3.6 MiB in all for 32 output channels."""
GRADIENT_STAGES = 3
"""Tiles of the gradient that are on their way from memory while one is worked on, and that one."""


@triton.jit
def _patches(
    x, line, offs_x, height, width, out_height, out_width,
    C: tl.constexpr, KERNEL: tl.constexpr, STRIDE: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Patches of pixels of one output line, (BLOCK_K, BLOCK_P); 0 outside of the picture and of the line."""
    k = tl.arange(0, BLOCK_K)
    row, column = k // (KERNEL * C), k // C % KERNEL
    top = line % out_height * STRIDE - KERNEL // 2
    left = offs_x * STRIDE - KERNEL // 2
    y, z = top + row, left[None, :] + column[:, None]
    in_y = (y >= 0) & (y < height) & (k < KERNEL * KERNEL * C)
    there = (z >= 0) & (z < width) & in_y[:, None] & (offs_x < out_width)[None, :]
    # `top` and `left` may lie outside of the picture: only where the mask says so, something is read.
    above = (line // out_height).to(tl.int64) * height + top
    corners = x + above * (width * C) + left * C
    inner = (row * (width * C)).to(tl.int64) + k % (KERNEL * C)
    return tl.load(corners[None, :] + inner[:, None], mask=there, other=0.0)


@triton.jit(do_not_specialize=["height", "width", "out_height", "out_width"])
def _forward_kernel(
    y, x, weight, columns, height, width, out_height, out_width,
    C: tl.constexpr, KERNEL: tl.constexpr, STRIDE: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
) -> None:  # fmt: skip
    blocks = tl.cdiv(out_width, BLOCK_P)
    line, start = tl.program_id(0) // blocks, tl.program_id(0) % blocks * BLOCK_P
    offs_p = tl.arange(0, BLOCK_P)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    length = KERNEL * KERNEL * C
    in_n = offs_n < columns
    weights = tl.load(
        weight + offs_n[None, :] * length + offs_k[:, None],
        mask=in_n[None, :] & (offs_k < length)[:, None],
        other=0.0,
    )
    patches = _patches(x, line, start + offs_p, height, width, out_height, out_width, C, KERNEL, STRIDE, BLOCK_K)
    out = tl.dot(tl.trans(patches), weights)
    target = y + (line * out_width + start).to(tl.int64) * columns
    in_line = start + offs_p < out_width
    at = offs_p[:, None] * columns + offs_n[None, :]
    tl.store(target + at, out.to(y.dtype.element_ty), mask=in_line[:, None] & in_n[None, :])


@triton.jit(do_not_specialize=["tiles", "tiles_per_program", "height", "width", "out_height", "out_width"])
def _weight_gradient_kernel(
    part, x, dy, tiles, tiles_per_program, columns, height, width, out_height, out_width,
    C: tl.constexpr, KERNEL: tl.constexpr, STRIDE: tl.constexpr, STAGES: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr,
) -> None:  # fmt: skip
    """Sums over the pixels of each program: part[program, n, f]."""
    blocks = tl.cdiv(out_width, BLOCK_P)
    offs_p = tl.arange(0, BLOCK_P)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    length = KERNEL * KERNEL * C
    in_n = offs_n < columns
    first = tl.program_id(0) * tiles_per_program
    sums = tl.zeros((BLOCK_K, BLOCK_N), tl.float32)
    for tile in tl.range(first, tl.minimum(first + tiles_per_program, tiles), num_stages=STAGES):
        line, start = tile // blocks, tile % blocks * BLOCK_P
        patches = _patches(x, line, start + offs_p, height, width, out_height, out_width, C, KERNEL, STRIDE, BLOCK_K)
        source = dy + (line * out_width + start).to(tl.int64) * columns
        in_line = start + offs_p < out_width
        at = offs_p[:, None] * columns + offs_n[None, :]
        gradient = tl.load(source + at, mask=in_line[:, None] & in_n[None, :], other=0.0)
        sums = tl.dot(patches, gradient, sums)
    at_part = (tl.program_id(0) * columns + offs_n)[None, :] * length + offs_k[:, None]
    tl.store(part + at_part, sums, mask=in_n[None, :] & (offs_k < length)[:, None])


def convolve_picture_fused(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """The fused form of `yolov9.ops.picture_convolution.convolve_picture`; both tensors are channels-last."""
    c_out, channels, kernel, _ = weight.shape
    y = empty_rows(x[:, :, ::stride, ::stride], c_out)
    _forward_kernel[_tiles(y), triton.cdiv(c_out, _block_n(c_out))](
        y, x, weight, c_out, *x.shape[2:], *y.shape[2:],
        C=channels, KERNEL=kernel, STRIDE=stride, **_blocks(weight),
    )  # fmt: skip
    return y


def add_weight_gradient_fused(x: Tensor, dy: Tensor, total: Tensor, stride: int) -> None:
    """Adds the gradient of the weight to `total`, float32 and of its shape; all three are channels-last."""
    c_out, channels, kernel, _ = total.shape
    tiles = _tiles(dy)
    tiles_per_program = triton.cdiv(tiles, GRADIENT_PROGRAMS)
    programs = triton.cdiv(tiles, tiles_per_program)
    part = torch.empty((programs, total.numel(), 1, 1), dtype=torch.float32, device=x.device)
    _weight_gradient_kernel[programs, triton.cdiv(c_out, _block_n(c_out))](
        part, x, dy, tiles, tiles_per_program, c_out, *x.shape[2:], *dy.shape[2:],
        C=channels, KERNEL=kernel, STRIDE=stride, STAGES=GRADIENT_STAGES, **_blocks(total),
    )  # fmt: skip
    add_column_sums_fused(part, total.as_strided((total.numel(),), (1,)))


def _tiles(y: Tensor) -> int:
    batch, _, height, width = y.shape
    return batch * height * int(triton.cdiv(width, BLOCK_P))


def _blocks(weight: Tensor) -> dict[str, int]:
    block_k = max(triton.next_power_of_2(weight[0].numel()), LEAST_DOT)
    return {"BLOCK_P": BLOCK_P, "BLOCK_K": block_k, "BLOCK_N": _block_n(weight.shape[0]), "num_warps": WARPS}


def _block_n(c_out: int) -> int:
    return max(min(int(triton.next_power_of_2(c_out)), MAX_BLOCK_N), LEAST_DOT)
