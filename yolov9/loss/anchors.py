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

    Kernels only, no copy from the host.

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


class KnownAnchors:
    """Makes the anchor points of each map size once.

    None is ever dropped, because recorded CUDA graphs read them; a run has few picture sizes, and one takes 0.1 MB.

    Args:
        strides: cell size of each level in pixels.
    """

    def __init__(self, strides: Sequence[float]) -> None:
        self.strides = tuple(strides)
        self._known: dict[tuple[object, ...], Anchors] = {}

    def has(self, level_hw: Sequence[tuple[int, int]], device: torch.device) -> bool:
        """Tells whether `get` makes nothing, so that every stream may use what it returns."""
        return (*level_hw, device) in self._known

    def get(self, level_hw: Sequence[tuple[int, int]], device: torch.device) -> Anchors:
        """Returns the anchor points of maps of the given sizes, made on the current stream when they are new."""
        key = (*level_hw, device)
        known = self._known.get(key)
        if known is None:
            # Made outside of inference mode: such tensors could not take part in a later backward pass.
            with torch.inference_mode(False):
                known = make_anchors(level_hw, self.strides, device)
            # What is made while a graph is recorded belongs to its memory and must not outlive it.
            recording = torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]  # not annotated in torch
            if not recording:
                self._known[key] = known
        return known


def boxes_from_distances(points: Tensor, distances: Tensor) -> Tensor:
    """Boxes (..., 4) left, top, right, bottom from points (..., 2) and distances to the four sides, same unit."""
    return torch.cat((points - distances[..., :2], points + distances[..., 2:]), -1)
