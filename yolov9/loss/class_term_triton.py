"""CUDA kernels (Triton) for `class_term` without focal exponent: class scores stay in half precision in memory.

With s = softplus(x) and target t, weight w of the positive part, an element adds (1 - t) s + w t (s - x), which is s
plus t ((w - 1) s - w x); its gradient is sig(x) + t ((w - 1) sig(x) - w). The second part exists for slots only.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 4096
"""Elements of one round of a program: 16 a thread at 8 warps."""
PROGRAMS = 1024
"""Partial sums of the forward pass at the most."""
WARPS = 8


@triton.jit
def _softplus(x):
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit(do_not_specialize=["count"])
def _sum_kernel(part, logits, count, TILE: tl.constexpr):
    total = tl.zeros((TILE,), tl.float32)
    first = tl.program_id(0).to(tl.int64) * TILE
    for start in range(first, count, tl.num_programs(0).to(tl.int64) * TILE):
        at = start + tl.arange(0, TILE)
        x = tl.load(logits + at, mask=at < count, other=float("-inf")).to(tl.float32)
        total += _softplus(x)
    tl.store(part + tl.program_id(0), tl.sum(total, 0))


@triton.jit(do_not_specialize=["count"])
def _slope_kernel(gradient, logits, scale, count, TILE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    x = tl.load(logits + at, mask=at < count, other=0.0).to(tl.float32)
    tl.store(gradient + at, tl.sigmoid(x) * tl.load(scale), mask=at < count)


@triton.jit(do_not_specialize=["slots", "row_elements", "count"])
def _slot_kernel(
    gradient, logits, index, soft, scale, weight, count, slots, row_elements, TILE: tl.constexpr
):  # fmt: skip
    """Overwrites the gradient where a slot has a target; no two such slots have the same place."""
    slot = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = slot < count
    target = tl.load(soft + slot, mask=inside, other=0.0)
    used = inside & (target > 0.0)
    at = (slot // slots).to(tl.int64) * row_elements + tl.load(index + slot, mask=used, other=0)
    sig = tl.sigmoid(tl.load(logits + at, mask=used, other=0.0).to(tl.float32))
    slope = sig + target * ((weight - 1.0) * sig - weight)
    tl.store(gradient + at, slope * tl.load(scale), mask=used)


class _ClassTerm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, slot_index: Tensor, soft: Tensor, positive_weight: float) -> Tensor:
        count = logits.numel()
        programs = min(PROGRAMS, triton.cdiv(count, TILE))
        part = torch.empty(programs, dtype=torch.float32, device=logits.device)
        _sum_kernel[(programs,)](part, logits, count, TILE=TILE, num_warps=WARPS)
        slots = logits.gather(1, slot_index).float()
        plus = torch.nn.functional.softplus(slots)
        ctx.save_for_backward(logits, slot_index, soft)
        ctx.positive_weight = positive_weight
        return part.sum() + (soft * ((positive_weight - 1) * plus - positive_weight * slots)).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        logits, slot_index, soft = ctx.saved_tensors
        scale = gradients[0].float().contiguous()
        gradient = torch.empty_like(logits)
        count = logits.numel()
        _slope_kernel[(triton.cdiv(count, TILE),)](gradient, logits, scale, count, TILE=TILE, num_warps=WARPS)
        rows, slots = soft.shape
        _slot_kernel[(triton.cdiv(rows * slots, TILE // WARPS),)](
            gradient, logits, slot_index.contiguous(), soft.contiguous(), scale, ctx.positive_weight,
            rows * slots, slots, logits.shape[1], TILE=TILE // WARPS,
        )  # fmt: skip
        return gradient, None, None, None


def class_term_fused(logits: Tensor, slot_index: Tensor, soft: Tensor, positive_weight: float) -> Tensor:
    """The fused form of `yolov9.loss.terms.class_term` for half-precision logits."""
    result: Tensor = _ClassTerm.apply(logits, slot_index, soft, positive_weight)
    return result
