"""Intersection over union and its distance-aware variants for boxes left, top, right, bottom."""

import math
from enum import Enum

import torch
from torch import Tensor

HEIGHT_EPSILON = 1e-7
"""Added to heights, unions and enclosing sizes, so that boxes without area give finite values and gradients."""


class IouKind(Enum):
    """Which overlap measure `iou_pairs` computes; all are at most 1."""

    IOU = "iou"
    """Intersection over union."""
    GIOU = "giou"
    """Less the share of the enclosing box that neither covers (Rezatofighi et al. 2019, arXiv:1902.09630)."""
    DIOU = "diou"
    """Less the squared centre distance over the squared enclosing diagonal (Zheng et al. 2020, arXiv:1911.08287)."""
    CIOU = "ciou"
    """DIoU less a penalty for different aspect ratios (same paper)."""


def iou_pairs(first: Tensor, second: Tensor, kind: IouKind = IouKind.IOU) -> Tensor:
    """Overlap of boxes that broadcast against each other.

    Args:
        first: (..., 4) boxes, float32.
        second: (..., 4) boxes in the same unit; the leading dimensions broadcast.
        kind: which measure.

    Returns:
        The broadcast leading shape. Differentiable in both; the weight of the aspect penalty counts as a constant, as
        the authors of CIoU recommend.
    """
    left_a, top_a, right_a, bottom_a = _columns(first)
    left_b, top_b, right_b, bottom_b = _columns(second)
    width_a, height_a = right_a - left_a, bottom_a - top_a + HEIGHT_EPSILON
    width_b, height_b = right_b - left_b, bottom_b - top_b + HEIGHT_EPSILON
    overlap = (torch.minimum(right_a, right_b) - torch.maximum(left_a, left_b)).clamp(min=0)
    overlap = overlap * (torch.minimum(bottom_a, bottom_b) - torch.maximum(top_a, top_b)).clamp(min=0)
    union = width_a * height_a + width_b * height_b - overlap + HEIGHT_EPSILON
    iou = overlap / union
    del overlap  # pair tensors can be large: each is let go as soon as it is used up
    if kind is IouKind.IOU:
        return iou
    outer_width = torch.maximum(right_a, right_b) - torch.minimum(left_a, left_b)
    outer_height = torch.maximum(bottom_a, bottom_b) - torch.minimum(top_a, top_b)
    if kind is IouKind.GIOU:
        outer = outer_width * outer_height + HEIGHT_EPSILON
        return iou - (outer - union) / outer
    del union
    diagonal = outer_width.square() + outer_height.square() + HEIGHT_EPSILON
    del outer_width, outer_height
    distance = ((left_b + right_b) - (left_a + right_a)).square() + ((top_b + bottom_b) - (top_a + bottom_a)).square()
    diou = iou - distance / (4 * diagonal)
    del distance, diagonal
    if kind is IouKind.DIOU:
        return diou
    angle_a, angle_b = torch.atan(width_a / height_a), torch.atan(width_b / height_b)
    aspect = (angle_b - angle_a).square() * (4 / math.pi**2)
    with torch.no_grad():
        weight = aspect / (aspect - iou + (1 + HEIGHT_EPSILON))
    return diou - aspect * weight


def _columns(boxes: Tensor) -> tuple[Tensor, ...]:
    """Left, top, right, bottom, each together in memory: pairing is several times faster so."""
    return boxes.movedim(-1, 0).contiguous().unbind(0)


def iou_matrix(first: Tensor, second: Tensor) -> Tensor:
    """Plain IoU of every box of `first` (n, 4) with every box of `second` (m, 4): (n, m); 0 where both lack area."""
    area_first = (first[:, 2] - first[:, 0]) * (first[:, 3] - first[:, 1])
    area_second = (second[:, 2] - second[:, 0]) * (second[:, 3] - second[:, 1])
    low = torch.maximum(first[:, None, :2], second[None, :, :2])
    high = torch.minimum(first[:, None, 2:4], second[None, :, 2:4])
    overlap = (high - low).clamp(min=0).prod(-1)
    return overlap / (area_first[:, None] + area_second[None] - overlap + HEIGHT_EPSILON)
