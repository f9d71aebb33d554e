"""Task-aligned label assignment (Feng et al. 2021, arXiv:2108.07755) with fixed shapes and no wait for the device.

Every target takes the anchors inside its box that agree with it best; an anchor wanted by several targets goes to one.
The answer is a list of slots, `topk` for each target, because positives are few: what follows works on B x M x topk
elements and not on all anchors. B x M x N tensors (targets by anchors) exist for a bounded number of pairs at a time.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from yolov9.loss.settings import LossSettings
from yolov9.loss.targets import PixelTargets
from yolov9.loss.terms import fused_applies
from yolov9.ops.iou import IouKind, iou_pairs

PAIRS_AT_ONCE = 2**24
"""Pairs of target and anchor looked at together: 64 MiB for each of about six float32 tensors alive at a time."""
NORM_EPSILON = 1e-9
"""Added to the best alignment of a target before dividing by it."""


@dataclass(frozen=True)
class Assignment:
    """Slots of one head: S = M x min(topk, N) of them for each picture; a positive anchor is in exactly one."""

    anchors: Tensor
    """(B, S) int64 anchor of the slot; any anchor where `positive` is False."""
    targets: Tensor
    """(B, S) int64 target that the anchor answers for."""
    positive: Tensor
    """(B, S) bool: the slot is in use."""
    soft: Tensor
    """(B, S) float32 soft target of the class score, 0 to 1; 0 where not positive."""


@torch.no_grad()
def assign(logits: Tensor, boxes: Tensor, points: Tensor, targets: PixelTargets, settings: LossSettings) -> Assignment:
    """Assigns the anchors of each picture to its targets.

    Args:
        logits: (B, N, classes) class scores before the sigmoid.
        boxes: (B, N, 4) predicted boxes, left, top, right, bottom in pixels, float32.
        points: (N, 2) anchor points in pixels.
        targets: what is in the pictures.
        settings: `topk`, `alpha` and `beta` are used.
    """
    if fused_applies(logits):
        from yolov9.loss.assigner_triton import assign_fused

        return Assignment(*assign_fused(logits, boxes, points, targets, settings))
    claims = _claim(logits, boxes, points, targets, settings)
    anchors, wanted = claims.anchors, claims.wanted
    slots = anchors.shape[1]
    pictures, number = targets.labels.shape

    claimants = _claimants(anchors, number)
    votes = boxes.new_zeros(boxes.shape[:2]).scatter_add_(1, anchors, wanted.float())
    contested = votes.gather(1, anchors) > 1
    chosen = torch.where(contested, claims.best_target.gather(1, anchors), claimants)

    # Of the slots that hold the same anchor only the first one stays in use.
    order = torch.arange(slots, device=boxes.device).expand(pictures, slots)
    first = anchors.new_full(boxes.shape[:2], slots)
    first.scatter_reduce_(1, anchors, torch.where(wanted, order, slots), "amin")
    positive = wanted & (first.gather(1, anchors) == order)

    soft = _soft_targets(logits, boxes, targets, anchors, chosen, positive, settings)
    return Assignment(anchors=anchors, targets=chosen, positive=positive, soft=soft)


@dataclass(frozen=True)
class _Claims:
    """What every target asks for, before conflicts are settled."""

    anchors: Tensor
    """(B, S) int64."""
    wanted: Tensor
    """(B, S) bool."""
    best_target: Tensor
    """(B, N) int64: the target with the highest CIoU among all targets of the picture."""


def _claim(logits: Tensor, boxes: Tensor, points: Tensor, targets: PixelTargets, settings: LossSettings) -> _Claims:
    pictures, anchors, _ = boxes.shape
    topk = min(settings.topk, anchors)
    step = max(1, PAIRS_AT_ONCE // max(1, pictures * anchors))
    best_ciou = boxes.new_zeros(pictures, anchors)
    best_target = torch.zeros_like(best_ciou, dtype=torch.long)
    chosen, wanted = [], []
    for start in range(0, targets.labels.shape[1], step):
        part = slice(start, start + step)
        ciou = iou_pairs(targets.boxes[:, part, None], boxes[:, None], IouKind.CIOU).clamp_(min=0)
        ciou *= targets.real[:, part, None]
        highest, which = ciou.max(1)  # the first one among equals
        better = highest > best_ciou
        best_ciou = torch.where(better, highest, best_ciou)
        best_target = torch.where(better, which + start, best_target)
        alignment = ciou.pow_(settings.beta)
        alignment *= _class_scores(logits, targets.labels[:, part]).pow_(settings.alpha)
        alignment *= _inside(points, targets.boxes[:, part])
        values, indices = alignment.topk(topk, dim=-1)
        chosen.append(indices)
        wanted.append(values > 0)
    return _Claims(torch.cat(chosen, 1).flatten(1), torch.cat(wanted, 1).flatten(1), best_target)


def _class_scores(logits: Tensor, labels: Tensor) -> Tensor:
    """Score of each target's class at each anchor: (B, m, N) float32 from (B, N, classes) and (B, m)."""
    index = labels[..., None].expand(-1, -1, logits.shape[1])
    return logits.transpose(1, 2).gather(1, index).float().sigmoid_()


def _inside(points: Tensor, boxes: Tensor) -> Tensor:
    """Which anchor points (N, 2) lie strictly inside which boxes (B, m, 4): (B, m, N) bool."""
    left, top, right, bottom = boxes[..., None, :].unbind(-1)
    x, y = points.T.contiguous().unbind(0)
    inside = x > left
    inside &= x < right
    inside &= y > top
    inside &= y < bottom
    return inside


def _claimants(anchors: Tensor, targets: int) -> Tensor:
    """The target that each slot belongs to, (B, S) int64: `topk` slots in a row for each target."""
    pictures, slots = anchors.shape
    number = torch.arange(targets, device=anchors.device)
    return number[:, None].expand(targets, slots // targets).reshape(slots).expand(pictures, slots)


def _soft_targets(
    logits: Tensor,
    boxes: Tensor,
    targets: PixelTargets,
    anchors: Tensor,
    chosen: Tensor,
    positive: Tensor,
    settings: LossSettings,
) -> Tensor:
    """Alignment of each slot, scaled so that the best slot of a target gets the best CIoU of that target."""
    slot_boxes = boxes.gather(1, anchors[..., None].expand(-1, -1, 4))
    target_boxes = targets.boxes.gather(1, chosen[..., None].expand(-1, -1, 4))
    ciou = iou_pairs(target_boxes, slot_boxes, IouKind.CIOU).clamp_(min=0) * positive
    label = targets.labels.gather(1, chosen)
    score = logits.flatten(1).gather(1, anchors * logits.shape[2] + label).float().sigmoid_()
    alignment = score.pow_(settings.alpha) * ciou.pow(settings.beta)
    best = alignment.new_zeros(2, *targets.labels.shape)
    best_alignment = best[0].scatter_reduce_(1, chosen, alignment, "amax")
    best_ciou = best[1].scatter_reduce_(1, chosen, ciou, "amax")
    return alignment * best_ciou.gather(1, chosen) / (best_alignment.gather(1, chosen) + NORM_EPSILON) * positive
