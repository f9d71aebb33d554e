"""The three terms of the loss, summed over a batch and not yet divided by the soft targets."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from yolov9.ops.norm_act import triton_is_installed
from yolov9.ops.plain import plain_wanted

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
    if focal_gamma == 0 and _fused_applies(logits):
        from yolov9.loss.class_term_triton import class_term_fused

        return class_term_fused(logits, slot_index, soft, positive_weight)
    logits = logits.float()
    slots = logits.gather(1, slot_index)
    difference = _cross_entropy(slots, soft, positive_weight, focal_gamma) - _negative(slots, focal_gamma)
    return _negative(logits, focal_gamma).sum() + difference.sum()


def _fused_applies(values: Tensor) -> bool:
    half = values.dtype in (torch.bfloat16, torch.float16)
    return values.is_cuda and half and values.is_contiguous() and triton_is_installed() and not plain_wanted()


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


def distribution_term(log_shares: Tensor, distances: Tensor) -> Tensor:
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
def side_distances(sides: Tensor) -> Tensor:
    """Mean distance in cells (..., 4), float32, from the logits (..., 4, bins) of its distribution; no gradient."""
    if _fused_applies(sides):
        from yolov9.loss.side_distances_triton import side_distances_fused

        return side_distances_fused(sides)
    return expected_distances(sides.softmax(-1, dtype=torch.float32))


def expected_distances(shares: Tensor) -> Tensor:
    """Mean distance in cells (..., 4) of distributions (..., 4, bins).

    A weighted sum and not a matrix product, because a matrix product may be rounded to TF32.
    """
    bins = torch.arange(shares.shape[-1], device=shares.device, dtype=shares.dtype)
    return (shares * bins).sum(-1)
