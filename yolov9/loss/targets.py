"""Targets of a batch: rows as the loader gives them, and a padded table whose shape repeats."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yolov9.ops.boxes import xywh_to_xyxy

TARGET_BUCKETS = (8, 16, 32, 64, 96, 128, 192, 256, 384, 512)
"""Sizes that the number of targets of a picture is rounded up to; beyond the last, its multiples.

Few sizes, because each one is a CUDA graph of its own; close enough that at most half of a large table is padding."""


def pack_targets(rows: Tensor | NDArray[np.float32], batch_size: int, bucket: Sequence[int] = TARGET_BUCKETS) -> Tensor:
    """Turns target rows into one table for each picture, padded to the next bucket size.

    Call it before the rows go to the GPU: it looks at their values.

    Args:
        rows: (n, 6) picture, class, centre x, centre y, width, height; boxes as shares of the picture's size.
        batch_size: number of pictures, also of those without targets.
        bucket: rising sizes that the table may have.

    Returns:
        float32 (batch_size, M, 5): class, centre x, centre y, width, height; class -1 and zeros are padding. Targets of
        a picture keep their order.

    Raises:
        ValueError: a row names a picture outside the batch.
    """
    rows = torch.as_tensor(rows, dtype=torch.float32)
    picture = rows[:, 0].long()
    if bool(((picture < 0) | (picture >= batch_size)).any()):
        raise ValueError(f"target rows name pictures {int(picture.min())} to {int(picture.max())} of {batch_size}")
    counts = torch.bincount(picture, minlength=batch_size)
    order = picture.argsort(stable=True)
    picture = picture[order]
    rank = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[picture]
    most = int(counts.max()) if batch_size else 0
    table = rows.new_zeros(batch_size, _bucket_size(most, bucket), 5)
    table[..., 0] = -1
    table[picture, rank] = rows[order, 1:]
    return table


def _bucket_size(count: int, bucket: Sequence[int]) -> int:
    fitting = next((size for size in bucket if size >= count), None)
    return fitting if fitting is not None else -(-count // bucket[-1]) * bucket[-1]


@dataclass(frozen=True)
class PixelTargets:
    """Padded targets as the assigner uses them."""

    labels: Tensor
    """(B, M) int64 class numbers; 0 where padded."""
    boxes: Tensor
    """(B, M, 4) float32 left, top, right, bottom in pixels."""
    real: Tensor
    """(B, M) bool: neither padding nor a box whose coordinates add up to no more than 0 (centred off the corner)."""

    @classmethod
    def from_table(cls, table: Tensor, picture_hw: tuple[int, int]) -> "PixelTargets":
        """Scales a table (B, M, 5) of `pack_targets` to pixels of the network's picture."""
        height, width = picture_hw
        boxes = table[..., 1:].float()
        scaled = torch.stack(
            (boxes[..., 0] * width, boxes[..., 1] * height, boxes[..., 2] * width, boxes[..., 3] * height), -1
        )
        corners = xywh_to_xyxy(scaled)
        labels = table[..., 0].long()
        return cls(labels=labels.clamp(min=0), boxes=corners, real=(labels >= 0) & (corners.sum(-1) > 0))
