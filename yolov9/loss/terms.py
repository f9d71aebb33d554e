"""The three terms of the loss, summed over a batch and not yet divided by the soft targets."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from yolov9.loss.anchors import boxes_from_distances
from yolov9.ops.iou import IouKind, iou_pairs
from yolov9.ops.plain import kernels_take

FOCAL_ALPHA = 0.25
"""Share of the positive part in the focal form (Lin et al. 2017, arXiv:1708.02002)."""
SMALLEST_MISS = 1e-30
"""Floor of the focal base: below it the gradient of a power less than 1 would overflow."""
DISTANCE_MARGIN = 0.01
"""Distances stay this far below the last bin, so that the bin above always exists."""


def class_term(logits: Tensor, slot_index: Tensor, soft: Tensor, positive_weight: float, focal_gamma: float) -> Tensor:
    """Binary cross-entropy of all class scores against soft targets that are zero almost everywhere.

    The sum over zero targets plus, for the few slots with a target, the difference that the target makes: no table of
    targets as large as the scores is made.

    Args:
        logits: (B, N x classes), contiguous; calculated with in float32.
        slot_index: (B, S) int64 place of each slot's class score in a row of `logits`; each used place at most once.
        soft: (B, S) float32 soft targets; slots with 0 change nothing.
        positive_weight: weight of the positive part.
        focal_gamma: focal exponent; 0 is plain cross-entropy.

    Returns:
        Sum over the batch, a float32 scalar.
    """
    if focal_gamma == 0 and fused_applies(logits):
        from yolov9.loss.class_term_triton import class_term_fused

        return class_term_fused(logits, slot_index, soft, positive_weight)
    logits = logits.float()
    slots = logits.gather(1, slot_index)
    difference = _cross_entropy(slots, soft, positive_weight, focal_gamma) - _negative(slots, focal_gamma)
    return _negative(logits, focal_gamma).sum() + difference.sum()


def fused_applies(values: Tensor) -> bool:
    """Tells whether the CUDA kernels of the loss can be used for such maps."""
    half = values.dtype in (torch.bfloat16, torch.float16)
    return kernels_take(values) and half and values.is_contiguous()


def _negative(logits: Tensor, focal_gamma: float) -> Tensor:
    """Cross-entropy against the target 0."""
    loss = softplus(logits)
    if focal_gamma > 0:
        loss = loss * logits.sigmoid().clamp(min=SMALLEST_MISS).pow(focal_gamma) * (1 - FOCAL_ALPHA)
    return loss


def _cross_entropy(logits: Tensor, target: Tensor, positive_weight: float, focal_gamma: float) -> Tensor:
    loss = (1 - target) * softplus(logits) + positive_weight * target * softplus(-logits)
    if focal_gamma > 0:
        score = logits.sigmoid()
        missed = target * (1 - score) + (1 - target) * score
        share = target * FOCAL_ALPHA + (1 - target) * (1 - FOCAL_ALPHA)
        loss = loss * share * missed.clamp(min=SMALLEST_MISS).pow(focal_gamma)
    return loss


def box_terms(
    sides: Tensor,
    soft: Tensor,
    anchors: Tensor,
    chosen: Tensor,
    points: Tensor,
    strides: Tensor,
    target_boxes: Tensor,
) -> Tensor:
    """Box and distribution term of all slots, each slot weighted with its soft target.

    Args:
        sides: (B, N, 4 x bins) logits of the distances to the four sides; calculated with in float32.
        soft: (B, S) float32; slots with 0 change nothing.
        anchors: (B, S) int64 anchor of each slot; one with a soft target is in one slot only.
        chosen: (B, S) int64 target of each slot.
        points: (N, 2) float32 anchor points in pixels.
        strides: (N, 1) float32 cell sizes in pixels.
        target_boxes: (B, M, 4) float32 left, top, right, bottom in pixels.

    Returns:
        Sums over the batch of 1 - CIoU and of the distribution focal loss: (2,) float32, with a gradient along `sides`.
    """
    if fused_applies(sides):
        from yolov9.loss.box_terms_triton import box_terms_fused

        return box_terms_fused(sides, soft, anchors, chosen, points, strides, target_boxes)
    slot_sides = sides.gather(1, anchors[..., None].expand(-1, -1, sides.shape[2])).float()
    log_shares = _by_side(slot_sides).log_softmax(-1)
    points, strides = points[anchors], strides[anchors]
    boxes = boxes_from_distances(points, _expected_distances(log_shares.exp()) * strides)
    true_boxes = target_boxes.gather(1, chosen[..., None].expand(-1, -1, 4))
    box = 1 - iou_pairs(boxes, true_boxes, IouKind.CIOU)
    distances = torch.cat((points - true_boxes[..., :2], true_boxes[..., 2:] - points), -1) / strides
    return torch.stack(((box * soft).sum(), (_distribution_term(log_shares, distances) * soft).sum()))


def _distribution_term(log_shares: Tensor, distances: Tensor) -> Tensor:
    """Distribution focal loss (Li et al. 2020, arXiv:2006.04388): cross-entropy with the two bins around a distance.

    Args:
        log_shares: (..., 4, bins) logarithms of the predicted distribution of each side.
        distances: (..., 4) true distances in cells; clipped to what the bins can express.

    Returns:
        Mean over the four sides, shape (...).
    """
    last = log_shares.shape[-1] - 1
    wanted = distances.clamp(0, last - DISTANCE_MARGIN)
    lower = wanted.floor()
    upper_share = wanted - lower
    lower_bin = lower.long()[..., None]
    lower_log = log_shares.gather(-1, lower_bin)[..., 0]
    upper_log = log_shares.gather(-1, lower_bin + 1)[..., 0]
    return -(lower_log * (1 - upper_share) + upper_log * upper_share).mean(-1)


@torch.no_grad()
def predicted_boxes(sides: Tensor, points: Tensor, strides: Tensor) -> Tensor:
    """Boxes of all anchors (B, N, 4), float32, left, top, right, bottom in pixels; no gradient.

    Args:
        sides: (B, N, 4 x bins) logits of the distances to the four sides.
        points: (N, 2) float32 anchor points in pixels.
        strides: (N, 1) float32 cell sizes in pixels.
    """
    if fused_applies(sides):
        from yolov9.loss.predicted_boxes_triton import predicted_boxes_fused

        return predicted_boxes_fused(sides, points, strides)
    distances = _expected_distances(_by_side(sides).softmax(-1, dtype=torch.float32))
    return boxes_from_distances(points, distances * strides)


def _by_side(sides: Tensor) -> Tensor:
    """(B, n, 4 x bins) as (B, n, 4, bins)."""
    return sides.view(*sides.shape[:2], 4, sides.shape[2] // 4)


def _expected_distances(shares: Tensor) -> Tensor:
    """Mean distance in cells (..., 4) of distributions (..., 4, bins).

    A weighted sum and not a matrix product, because a matrix product may be rounded to TF32.
    """
    bins = torch.arange(shares.shape[-1], device=shares.device, dtype=shares.dtype)
    return (shares * bins).sum(-1)
