"""CUDA kernels (Triton) for `yolov9.loss.terms.box_terms`: each slot's box and distribution term, and their gradient.

Slots without a soft target read and write nothing. A used anchor belongs to one slot, so gradients are stored and not
added up. The gradient of the distribution of a side along its logit k, with shares p and mean distance d, is
p_k (k - d) through the box and p_k - t_k through the distribution term, where t are the shares of the two bins around
the true distance.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from yolov9.loss.ciou_triton import ciou_of, ciou_slopes

SLOTS_PER_TILE = 32
"""Slots of one program: 512 logits a side at 16 bins."""
DISTANCE_MARGIN = tl.constexpr(0.01)
"""As in `yolov9.loss.terms`."""
SHARE_OF_SIDE = tl.constexpr(0.25)
"""The distribution term of a box is the mean over its four sides."""


@triton.jit
def _distribution(sides, base, used, bins, BLOCK_B: tl.constexpr):
    """Shares of the bins of one side (BLOCK_S, BLOCK_B), their logarithms, and the mean distance in cells."""
    bin_ = tl.arange(0, BLOCK_B)[None, :]
    value = tl.load(sides + base[:, None] + bin_, mask=used[:, None] & (bin_ < bins), other=0.0).to(tl.float32)
    value = tl.where(bin_ < bins, value, float("-inf"))
    value -= tl.max(value, 1)[:, None]
    power = tl.exp(value)
    total = tl.sum(power, 1)[:, None]
    share = power / total
    return share, value - tl.log(total), tl.sum(share * bin_.to(tl.float32), 1)


@triton.jit
def _true_shares(distance, bins, BLOCK_B: tl.constexpr):
    """Shares of the two bins around a true distance, which is clipped to what the bins can express."""
    bin_ = tl.arange(0, BLOCK_B)[None, :]
    wanted = tl.minimum(tl.maximum(distance, 0.0), bins - 1 - DISTANCE_MARGIN)
    lower = wanted.to(tl.int32)
    upper_share = (wanted - lower.to(tl.float32))[:, None]
    lower = lower[:, None]
    return tl.where(bin_ == lower, 1.0 - upper_share, tl.where(bin_ == lower + 1, upper_share, 0.0))


@triton.jit
def _cross_entropy(true_share, log_share):
    return -tl.sum(tl.where(true_share > 0.0, true_share * log_share, 0.0), 1)


@triton.jit
def _slot(soft, anchors, chosen, points, strides, target_boxes, count, slots, anchor_count, targets, BLOCK_S):
    """What a slot is about: is it used, soft target, row of its anchor, point, cell size, true box."""
    slot = tl.program_id(0) * BLOCK_S + tl.arange(0, BLOCK_S)
    inside = slot < count
    weight = tl.load(soft + slot, mask=inside, other=0.0)
    used = weight > 0.0
    picture = (slot // slots).to(tl.int64)
    anchor = tl.load(anchors + slot, mask=used, other=0)
    x = tl.load(points + anchor * 2, mask=used, other=0.0)
    y = tl.load(points + anchor * 2 + 1, mask=used, other=0.0)
    stride = tl.load(strides + anchor, mask=used, other=1.0)
    box = target_boxes + (picture * targets + tl.load(chosen + slot, mask=used, other=0)) * 4
    left = tl.load(box, mask=used, other=0.0)
    top = tl.load(box + 1, mask=used, other=0.0)
    right = tl.load(box + 2, mask=used, other=0.0)
    bottom = tl.load(box + 3, mask=used, other=0.0)
    return used, weight, picture * anchor_count + anchor, x, y, stride, left, top, right, bottom


@triton.jit(do_not_specialize=["count", "slots", "anchor_count", "targets"])
def _forward_kernel(
    part, sides, soft, anchors, chosen, points, strides, target_boxes,
    count, slots, anchor_count, targets, bins, BLOCK_S: tl.constexpr, BLOCK_B: tl.constexpr,
) -> None:  # fmt: skip
    used, weight, row, x, y, stride, left, top, right, bottom = _slot(
        soft, anchors, chosen, points, strides, target_boxes, count, slots, anchor_count, targets, BLOCK_S
    )
    base = row * 4 * bins
    _, log_l, to_left = _distribution(sides, base, used, bins, BLOCK_B)
    _, log_t, to_top = _distribution(sides, base + bins, used, bins, BLOCK_B)
    _, log_r, to_right = _distribution(sides, base + 2 * bins, used, bins, BLOCK_B)
    _, log_b, to_bottom = _distribution(sides, base + 3 * bins, used, bins, BLOCK_B)
    ciou = ciou_of(
        x - to_left * stride, y - to_top * stride, x + to_right * stride, y + to_bottom * stride,
        left, top, right, bottom,
    )  # fmt: skip
    entropy = _cross_entropy(_true_shares((x - left) / stride, bins, BLOCK_B), log_l)
    entropy += _cross_entropy(_true_shares((y - top) / stride, bins, BLOCK_B), log_t)
    entropy += _cross_entropy(_true_shares((right - x) / stride, bins, BLOCK_B), log_r)
    entropy += _cross_entropy(_true_shares((bottom - y) / stride, bins, BLOCK_B), log_b)
    tl.store(part + tl.program_id(0) * 2, tl.sum(tl.where(used, (1.0 - ciou) * weight, 0.0), 0))
    tl.store(part + tl.program_id(0) * 2 + 1, tl.sum(tl.where(used, entropy * SHARE_OF_SIDE * weight, 0.0), 0))


@triton.jit
def _store_side(
    gradient, sides, base, used, true_distance, by_distance, by_entropy, bins, BLOCK_B: tl.constexpr
):  # fmt: skip
    """Gradient of one side's logits, from the slope along its mean distance and the weight of its cross-entropy."""
    bin_ = tl.arange(0, BLOCK_B)[None, :]
    share, _, distance = _distribution(sides, base, used, bins, BLOCK_B)
    value = by_distance[:, None] * share * (bin_.to(tl.float32) - distance[:, None])
    value += by_entropy[:, None] * (share - _true_shares(true_distance, bins, BLOCK_B))
    tl.store(gradient + base[:, None] + bin_, value, mask=used[:, None] & (bin_ < bins))


@triton.jit(do_not_specialize=["count", "slots", "anchor_count", "targets"])
def _backward_kernel(
    gradient, scale, sides, soft, anchors, chosen, points, strides, target_boxes,
    count, slots, anchor_count, targets, bins, BLOCK_S: tl.constexpr, BLOCK_B: tl.constexpr,
) -> None:  # fmt: skip
    used, weight, row, x, y, stride, left, top, right, bottom = _slot(
        soft, anchors, chosen, points, strides, target_boxes, count, slots, anchor_count, targets, BLOCK_S
    )
    base = row * 4 * bins
    _, _, to_left = _distribution(sides, base, used, bins, BLOCK_B)
    _, _, to_top = _distribution(sides, base + bins, used, bins, BLOCK_B)
    _, _, to_right = _distribution(sides, base + 2 * bins, used, bins, BLOCK_B)
    _, _, to_bottom = _distribution(sides, base + 3 * bins, used, bins, BLOCK_B)
    by_left, by_top, by_right, by_bottom = ciou_slopes(
        x - to_left * stride, y - to_top * stride, x + to_right * stride, y + to_bottom * stride,
        left, top, right, bottom,
    )  # fmt: skip
    by_box = -tl.load(scale) * weight * stride
    by_entropy = tl.load(scale + 1) * weight * SHARE_OF_SIDE
    _store_side(gradient, sides, base, used, (x - left) / stride, -by_left * by_box, by_entropy, bins, BLOCK_B)
    _store_side(gradient, sides, base + bins, used, (y - top) / stride, -by_top * by_box, by_entropy, bins, BLOCK_B)
    _store_side(
        gradient, sides, base + 2 * bins, used, (right - x) / stride, by_right * by_box, by_entropy, bins, BLOCK_B
    )
    _store_side(
        gradient, sides, base + 3 * bins, used, (bottom - y) / stride, by_bottom * by_box, by_entropy, bins, BLOCK_B
    )


class _BoxTerms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, sides: Tensor, *slots: Tensor) -> Tensor:
        ctx.save_for_backward(sides, *slots)
        numbers, programs = _launch(sides, *slots)
        part = torch.empty((programs, 2), device=sides.device)
        _forward_kernel[(programs,)](part, sides, *slots, **numbers)
        return part.sum(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        sides, *slots = ctx.saved_tensors
        numbers, programs = _launch(sides, *slots)
        gradient = torch.zeros_like(sides)
        _backward_kernel[(programs,)](gradient, gradients[0].float().contiguous(), sides, *slots, **numbers)
        return gradient, *(None for _ in slots)


def _launch(sides: Tensor, *slots: Tensor) -> tuple[dict[str, int], int]:
    """The numbers that both kernels take, and how many programs they need."""
    soft, target_boxes = slots[0], slots[-1]
    bins = sides.shape[2] // 4
    numbers = {
        "count": soft.numel(),
        "slots": soft.shape[1],
        "anchor_count": sides.shape[1],
        "targets": target_boxes.shape[1],
        "bins": bins,
        "BLOCK_S": SLOTS_PER_TILE,
        "BLOCK_B": triton.next_power_of_2(bins),
    }
    return numbers, max(1, triton.cdiv(soft.numel(), SLOTS_PER_TILE))


def box_terms_fused(
    sides: Tensor,
    soft: Tensor,
    anchors: Tensor,
    chosen: Tensor,
    points: Tensor,
    strides: Tensor,
    target_boxes: Tensor,
) -> Tensor:
    """The fused form of `yolov9.loss.terms.box_terms` for contiguous tensors."""
    result: Tensor = _BoxTerms.apply(sides, soft, anchors, chosen, points, strides, target_boxes)
    return result
