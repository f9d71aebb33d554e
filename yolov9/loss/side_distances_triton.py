"""CUDA kernel (Triton) for `side_distances`: one pass over the half-precision logits of all anchors."""

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS_PER_TILE = 128
"""Distributions of one program: 2,048 logits at 16 bins."""


@triton.jit(do_not_specialize=["rows"])
def _distances_kernel(target, sides, rows, bins, BLOCK_R: tl.constexpr, BLOCK_B: tl.constexpr):
    offs_r = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    offs_b = tl.arange(0, BLOCK_B)
    inside = (offs_r < rows)[:, None] & (offs_b < bins)[None, :]
    at = offs_r[:, None] * bins + offs_b[None, :]
    value = tl.load(sides + at, mask=inside, other=0.0).to(tl.float32)
    value = tl.where((offs_b < bins)[None, :], value, float("-inf"))
    share = tl.exp(value - tl.max(value, 1)[:, None])
    mean = tl.sum(share * offs_b.to(tl.float32)[None, :], 1) / tl.sum(share, 1)
    tl.store(target + offs_r, mean, mask=offs_r < rows)


def side_distances_fused(sides: Tensor) -> Tensor:
    """The fused form of `yolov9.loss.terms.side_distances` for contiguous tensors."""
    bins = sides.shape[-1]
    target = torch.empty(sides.shape[:-1], dtype=torch.float32, device=sides.device)
    rows = target.numel()
    _distances_kernel[(triton.cdiv(rows, ROWS_PER_TILE),)](
        target, sides, rows, bins, BLOCK_R=ROWS_PER_TILE, BLOCK_B=triton.next_power_of_2(bins)
    )
    return target
