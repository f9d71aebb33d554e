"""Anchor points: the centres of the cells of all levels, in the order in which the levels are joined."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Anchors:
    """Points of all levels of one picture size; N is their total number."""

    points: Tensor
    """(N, 2) float32 x, y in pixels."""
    strides: Tensor
    """(N, 1) float32 cell size in pixels."""


def make_anchors(level_hw: Sequence[tuple[int, int]], strides: Sequence[float], device: torch.device) -> Anchors:
    """Makes the anchor points of maps of the given sizes.

    Kernels only, no copy from the host, and nothing kept: a tensor made while a CUDA graph is recorded belongs to that
    graph's memory and must not outlive it in a cache.

    Args:
        level_hw: height and width of each level's map in cells.
        strides: cell size of each level in pixels.
        device: where the points are made.
    """
    points, sizes = [], []
    for (height, width), stride in zip(level_hw, strides, strict=True):
        x = (torch.arange(width, device=device, dtype=torch.float32) + 0.5) * stride
        y = (torch.arange(height, device=device, dtype=torch.float32) + 0.5) * stride
        points.append(torch.stack((x.expand(height, width), y[:, None].expand(height, width)), -1).view(-1, 2))
        sizes.append(torch.full((height * width, 1), stride, device=device, dtype=torch.float32))
    return Anchors(points=torch.cat(points), strides=torch.cat(sizes))


def boxes_from_distances(points: Tensor, distances: Tensor) -> Tensor:
    """Boxes (..., 4) left, top, right, bottom from points (..., 2) and distances to the four sides, same unit."""
    return torch.cat((points - distances[..., :2], points + distances[..., 2:]), -1)
