"""Greedy suppression of overlapping boxes for many pictures at once, block by block of falling score."""

import torch
from torch import Tensor

BLOCK = 256
"""Candidates decided together. Larger blocks wait less often for the device, but compare more boxes in vain."""


def suppress(boxes: Tensor, groups: Tensor, iou: float, max_kept: int) -> tuple[Tensor, Tensor]:
    """Keeps each box unless a kept box before it in the same group overlaps it by more than `iou`.

    Exactly the greedy rule, but in parallel: a block of candidates is first compared with the boxes kept so far; inside
    the block, "kept = not overlapped by a kept one before" is repeated until nothing changes. Each repetition settles
    at least one more candidate from the front, so it ends, and at the greedy answer.

    Args:
        boxes: (B, K, 4) left, top, right, bottom, best first, float32.
        groups: (B, K) int64: only boxes of the same group suppress each other; -1 marks padding at the end.
        iou: overlap that may just be kept.
        max_kept: most boxes kept in a picture; the search ends when every picture has them.

    Returns:
        Positions of the kept boxes (B, max_kept) int64, 0 behind the last one, and their number (B,) int64.
    """
    pictures, width = groups.shape
    if width == 0:
        # Nothing to point at: one column less than any position.
        return groups.new_zeros(pictures, 0), groups.new_zeros(pictures)
    # The last column takes whatever comes after the picture is full, and is cut off at the end.
    kept_at = groups.new_zeros(pictures, max_kept + 1)
    kept_boxes = boxes.new_zeros(pictures, max_kept + 1, 4)
    kept_groups = groups.new_full((pictures, max_kept + 1), -1)
    count = groups.new_zeros(pictures)
    totals = (groups >= 0).sum(1)
    for start in range(0, width, BLOCK):
        if start and not bool(((totals > start) & (count < max_kept)).any()):
            break
        block_boxes, block_groups = boxes[:, start : start + BLOCK], groups[:, start : start + BLOCK]
        used = min(start, max_kept)  # no more than `start` boxes can have been kept so far
        hit = _hits(kept_boxes[:, :used], kept_groups[:, :used], block_boxes, block_groups, iou).any(1)
        keep = _settle((block_groups >= 0) & ~hit, _hits(block_boxes, block_groups, block_boxes, block_groups, iou))
        rank = count[:, None] + keep.cumsum(1) - 1
        place = torch.where(keep, rank, max_kept).clamp(max=max_kept)
        position = torch.arange(start, start + keep.shape[1], device=boxes.device).expand_as(place)
        kept_at.scatter_(1, place, position)
        kept_boxes.scatter_(1, place[..., None].expand(-1, -1, 4), block_boxes)
        kept_groups.scatter_(1, place, block_groups)
        count = (count + keep.sum(1)).clamp(max=max_kept)
    return kept_at[:, :max_kept], count


def _settle(alive: Tensor, hits: Tensor) -> Tensor:
    """Greedy choice within a block: `alive` (B, L) candidates, `hits` (B, L, L) row overlaps column too much."""
    hits = hits.triu(1)
    keep = alive
    while True:
        following = alive & ~(hits & keep[..., None]).any(1)
        if torch.equal(following, keep):
            return keep
        keep = following


def _hits(first: Tensor, first_groups: Tensor, second: Tensor, second_groups: Tensor, iou: float) -> Tensor:
    """Which boxes of `first` (B, n, 4) overlap which of `second` (B, m, 4) by more than `iou`: (B, n, m) bool.

    Boxes without area give 0 / 0, which is not greater than anything: they are never dropped.
    """
    left_a, top_a, right_a, bottom_a = first.movedim(-1, 0).contiguous()[..., None].unbind(0)
    left_b, top_b, right_b, bottom_b = second.movedim(-1, 0).contiguous()[:, :, None].unbind(0)
    overlap = (torch.minimum(right_a, right_b) - torch.maximum(left_a, left_b)).clamp_(min=0)
    overlap *= (torch.minimum(bottom_a, bottom_b) - torch.maximum(top_a, top_b)).clamp_(min=0)
    areas = (right_a - left_a) * (bottom_a - top_a) + (right_b - left_b) * (bottom_b - top_b)
    return (overlap / (areas - overlap) > iou) & (first_groups[:, :, None] == second_groups[:, None])
