"""Anchor points: centres of the cells of all levels, made once for each set of map sizes."""

from collections.abc import Sequence

import torch
from torch import Tensor

CACHED_SHAPES = 64
"""Sets of map sizes kept; rectangular validation uses a few dozen, and one set is about 100 kB at 640 px."""


def make_anchors(
    sizes: Sequence[tuple[int, int]], strides: Sequence[int], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Centres of the cells, level after level, rows from top to bottom.

    Args:
        sizes: height and width of each level, in cells.
        strides: pixels a cell, of each level.
        device: where the tensors are made.

    Returns:
        Points (2 x N, x then y, in cells of their own level: column + 0.5, row + 0.5) and strides (1 x N), float32.
    """
    points, steps = [], []
    for (height, width), stride in zip(sizes, strides, strict=True):
        rows = torch.arange(height, device=device, dtype=torch.float32) + 0.5
        columns = torch.arange(width, device=device, dtype=torch.float32) + 0.5
        grid_y, grid_x = torch.meshgrid(rows, columns, indexing="ij")
        points.append(torch.stack((grid_x, grid_y)).flatten(1))
        steps.append(torch.full((1, height * width), float(stride), device=device))
    return torch.cat(points, 1), torch.cat(steps, 1)


class AnchorCache:
    """Remembers the anchors of the last map sizes, so that a repeated shape costs nothing.

    Args:
        strides: pixels a cell, of each level.
    """

    def __init__(self, strides: Sequence[int]) -> None:
        self.strides = tuple(strides)
        self._kept: dict[tuple[object, ...], tuple[Tensor, Tensor]] = {}

    def get(self, maps: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Anchors for raw maps of each level (B x C x H x W); see `make_anchors`."""
        sizes = [(int(m.shape[2]), int(m.shape[3])) for m in maps]
        key = (*sizes, maps[0].device)
        if key not in self._kept:
            if len(self._kept) >= CACHED_SHAPES:
                self._kept.pop(next(iter(self._kept)))
            # Made outside of inference mode: such a tensor could not take part in a later backward pass.
            with torch.inference_mode(False):
                self._kept[key] = make_anchors(sizes, self.strides, maps[0].device)
        return self._kept[key]
