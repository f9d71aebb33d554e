"""CUDA kernels (Triton) for `yolov9.loss.assigner.assign`: three launches, and no tensor of targets by anchors.

Only anchors inside a target's box can be taken by it, so each target looks at those alone; which target overlaps an
anchor most is asked for contested anchors alone. Votes and first slots are integers and the best values are maxima, so
that the order in which programs add to them does not matter.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from yolov9.loss.ciou_triton import ciou_of
from yolov9.loss.settings import LossSettings
from yolov9.loss.targets import PixelTargets

ANCHORS_PER_TILE = 1024
"""Anchors that a program looks at together: 8 a thread at 4 warps."""
SLOTS_PER_TILE = 128
NORM_EPSILON = tl.constexpr(1e-9)
"""As in `yolov9.loss.assigner`."""


@triton.jit
def _power(base, exponent):
    """base ** exponent for base >= 0; 0 ** 0 is 1."""
    power = tl.exp2(exponent * tl.log2(tl.where(base > 0.0, base, 1.0)))
    return tl.where(exponent == 0.0, 1.0, tl.where(base > 0.0, power, 0.0))


@triton.jit
def _alignment(logit, ciou, alpha, beta):
    return _power(tl.sigmoid(logit), alpha) * _power(ciou, beta)


@triton.jit
def _corners(boxes, at, mask):
    """Left, top, right, bottom of the boxes number `at`."""
    first = boxes + at * 4
    return (
        tl.load(first, mask=mask, other=0.0),
        tl.load(first + 1, mask=mask, other=0.0),
        tl.load(first + 2, mask=mask, other=0.0),
        tl.load(first + 3, mask=mask, other=0.0),
    )


@triton.jit(do_not_specialize=["count", "targets"])
def _claim_kernel(
    chosen_anchors, wanted, votes, first, logits, boxes, points, labels, target_boxes, real,
    count, targets, classes, alpha, beta, TOPK: tl.constexpr, KEPT: tl.constexpr, BLOCK_N: tl.constexpr,
) -> None:  # fmt: skip
    """The anchors that one target (program 0) of a picture (program 1) asks for: the TOPK best inside its box."""
    target, picture = tl.program_id(0), tl.program_id(1).to(tl.int64)
    row = picture * targets + target
    left, top, right, bottom = (
        tl.load(target_boxes + row * 4), tl.load(target_boxes + row * 4 + 1),
        tl.load(target_boxes + row * 4 + 2), tl.load(target_boxes + row * 4 + 3),
    )  # fmt: skip
    class_logits = logits + picture * count * classes + tl.load(labels + row)
    place = tl.arange(0, KEPT)
    # Places that are not to be used hold what nothing is better than.
    values = tl.where(place < TOPK, 0.0, float("inf"))
    holders = tl.zeros((KEPT,), tl.int32)
    number = tl.arange(0, BLOCK_N)
    until = tl.where(tl.load(real + row) != 0, count, 0)
    for start in range(0, until, BLOCK_N):
        anchor = start + number
        x = tl.load(points + anchor * 2, mask=anchor < count, other=float("-inf"))
        y = tl.load(points + anchor * 2 + 1, mask=anchor < count, other=float("-inf"))
        inside = (x > left) & (x < right) & (y > top) & (y < bottom)
        # An `if`, written as a loop: Triton 3.3 takes no `if` in a loop that calls functions.
        for _ in range(tl.max(inside.to(tl.int32), 0)):
            box_left, box_top, box_right, box_bottom = _corners(boxes, picture * count + anchor, inside)
            ciou = ciou_of(left, top, right, bottom, box_left, box_top, box_right, box_bottom)
            logit = tl.load(class_logits + anchor.to(tl.int64) * classes, mask=inside, other=0.0).to(tl.float32)
            offered = tl.where(inside, _alignment(logit, tl.maximum(ciou, 0.0), alpha, beta), 0.0)
            best = tl.max(offered, 0)
            while best > tl.min(values, 0):
                at = tl.argmax(offered, 0)
                replaced = place == tl.argmin(values, 0)
                values = tl.where(replaced, best, values)
                holders = tl.where(replaced, start + at, holders)
                offered = tl.where(number == at, 0.0, offered)
                best = tl.max(offered, 0)
    used = place < TOPK
    takes = used & (values > 0.0)
    slot = target * TOPK + place
    slots = targets * TOPK
    tl.store(chosen_anchors + picture * slots + slot, holders.to(tl.int64), mask=used)
    tl.store(wanted + picture * slots + slot, takes.to(tl.int8), mask=used)
    tl.atomic_add(votes + picture * count + holders, 1, mask=takes, sem="relaxed")
    tl.atomic_max(first + picture * count + holders, slots - slot, mask=takes, sem="relaxed")


@triton.jit(do_not_specialize=["count", "targets"])
def _settle_kernel(
    chosen_targets, positive, alignments, best_alignment, best_ciou, anchors, wanted, votes, first,
    logits, boxes, labels, target_boxes, real, count, targets, classes, alpha, beta,
    TOPK: tl.constexpr, BLOCK_S: tl.constexpr,
) -> None:  # fmt: skip
    """Gives each anchor to one target, uses one slot of it, and finds the best alignment and CIoU of each target."""
    picture = tl.program_id(1).to(tl.int64)
    slots = targets * TOPK
    slot = tl.program_id(0) * BLOCK_S + tl.arange(0, BLOCK_S)
    inside = slot < slots
    takes = tl.load(wanted + picture * slots + slot, mask=inside, other=0) != 0
    anchor = tl.load(anchors + picture * slots + slot, mask=inside, other=0)
    left, top, right, bottom = _corners(boxes, picture * count + anchor, takes)
    contested = tl.load(votes + picture * count + anchor, mask=takes, other=0) > 1
    chosen = slot // TOPK
    if tl.max(contested.to(tl.int32), 0) > 0:
        highest = tl.zeros((BLOCK_S,), tl.float32)
        which = tl.zeros((BLOCK_S,), tl.int32)
        for target in range(0, targets):
            row = picture * targets + target
            ciou = ciou_of(
                tl.load(target_boxes + row * 4), tl.load(target_boxes + row * 4 + 1),
                tl.load(target_boxes + row * 4 + 2), tl.load(target_boxes + row * 4 + 3),
                left, top, right, bottom,
            )  # fmt: skip
            better = (ciou > highest) & (tl.load(real + row) != 0)
            highest = tl.where(better, ciou, highest)
            which = tl.where(better, target, which)
        chosen = tl.where(contested, which, chosen)
    # Of the slots that hold the same anchor only the first one stays in use.
    stays = takes & (tl.load(first + picture * count + anchor, mask=takes, other=0) == slots - slot)
    row = picture * targets + chosen
    target_left, target_top, target_right, target_bottom = _corners(target_boxes, row, stays)
    ciou = ciou_of(target_left, target_top, target_right, target_bottom, left, top, right, bottom)
    ciou = tl.where(stays, tl.maximum(ciou, 0.0), 0.0)
    label = tl.load(labels + row, mask=stays, other=0)
    logit = tl.load(logits + (picture * count + anchor) * classes + label, mask=stays, other=0.0).to(tl.float32)
    alignment = tl.where(stays, _alignment(logit, ciou, alpha, beta), 0.0)
    at = picture * slots + slot
    tl.store(chosen_targets + at, chosen.to(tl.int64), mask=inside)
    tl.store(positive + at, stays.to(tl.int8), mask=inside)
    tl.store(alignments + at, alignment, mask=inside)
    tl.atomic_max(best_alignment + row, alignment, mask=stays, sem="relaxed")
    tl.atomic_max(best_ciou + row, ciou, mask=stays, sem="relaxed")


@triton.jit(do_not_specialize=["count", "slots", "targets"])
def _soft_kernel(
    soft, alignments, chosen_targets, best_alignment, best_ciou, count, slots, targets, BLOCK_S: tl.constexpr
):  # fmt: skip
    """Alignment of each slot, scaled so that the best slot of a target gets the best CIoU of that target."""
    slot = tl.program_id(0).to(tl.int64) * BLOCK_S + tl.arange(0, BLOCK_S)
    inside = slot < count
    row = slot // slots * targets + tl.load(chosen_targets + slot, mask=inside, other=0)
    scale = tl.load(best_ciou + row, mask=inside, other=0.0)
    best = tl.load(best_alignment + row, mask=inside, other=0.0)
    value = tl.load(alignments + slot, mask=inside, other=0.0)
    tl.store(soft + slot, value * scale / (best + NORM_EPSILON), mask=inside)


def assign_fused(
    logits: Tensor, boxes: Tensor, points: Tensor, targets: PixelTargets, settings: LossSettings
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The fused form of `assign` for contiguous tensors; returns anchors, targets, positive and soft targets."""
    pictures, count, classes = logits.shape
    number = targets.labels.shape[1]
    topk = min(settings.topk, count)
    slots, device = number * topk, logits.device
    votes, first = torch.zeros((2, pictures, count), dtype=torch.int32, device=device)
    best_alignment, best_ciou = torch.zeros((2, pictures, number), device=device)
    anchors, chosen = torch.empty((2, pictures, slots), dtype=torch.int64, device=device)
    wanted, positive = torch.empty((2, pictures, slots), dtype=torch.int8, device=device)
    alignments, soft = torch.empty((2, pictures, slots), device=device)
    real = targets.real.view(torch.uint8)
    exponents = settings.alpha, settings.beta
    if slots * pictures:
        _claim_kernel[(number, pictures)](
            anchors, wanted, votes, first, logits, boxes, points, targets.labels, targets.boxes, real,
            count, number, classes, *exponents, TOPK=topk, KEPT=triton.next_power_of_2(topk), BLOCK_N=ANCHORS_PER_TILE,
        )  # fmt: skip
        _settle_kernel[(triton.cdiv(slots, SLOTS_PER_TILE), pictures)](
            chosen, positive, alignments, best_alignment, best_ciou, anchors, wanted, votes, first,
            logits, boxes, targets.labels, targets.boxes, real, count, number, classes, *exponents,
            TOPK=topk, BLOCK_S=SLOTS_PER_TILE,
        )  # fmt: skip
        total = pictures * slots
        _soft_kernel[(triton.cdiv(total, SLOTS_PER_TILE),)](
            soft, alignments, chosen, best_alignment, best_ciou, total, slots, number, BLOCK_S=SLOTS_PER_TILE
        )
    return anchors, chosen, positive.view(torch.bool), soft
