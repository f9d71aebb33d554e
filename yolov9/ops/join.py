"""Concatenation along the channels without a copy: the parts are written where they belong by whoever computes them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from yolov9.ops.recompute import remember
from yolov9.ops.rows import as_rows, channel_slice, empty_rows

Fill = Callable[[Tensor], object]
"""Writes a part again into the tensor given, B x its channels x H x W."""


class Join:
    """Collects parts and hands out their concatenation.

    Args:
        channels: channels of all parts together.
    """

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self._parts: list[Tensor] = []
        self._buffer: Tensor | None = None
        self._fills: list[Fill | None] = []
        self._reserved = 0

    def put(self, part: Tensor) -> None:
        """Adds a part that lies in memory of its own."""
        self._parts.append(part)

    def reserve(self, like: Tensor, channels: int) -> Tensor:
        """Returns uninitialised memory for the next part: B x channels x H x W, a slice of the concatenation."""
        if self._buffer is None:
            self._buffer = empty_rows(like, self.channels)
        start, self._reserved = self._reserved, self._reserved + channels
        return channel_slice(self._buffer, start, channels)

    def put_reserved(self, part: Tensor, fill: Fill | None) -> None:
        """Adds a part that was written to the memory that `reserve` returned, and how to write it again.

        Without that (None) the concatenation is kept for the backward pass in any case.
        """
        self._parts.append(part)
        self._fills.append(fill)

    def result(self) -> Tensor:
        """Returns B x channels x H x W: all parts in the order in which they were put."""
        buffer = self._buffer
        if buffer is None or len(self._fills) < len(self._parts):
            return torch.cat(self._parts, 1)
        holder = [buffer]
        joined: Tensor = _Joined.apply(holder, *self._parts)
        fills = [fill for fill in self._fills if fill is not None]
        if len(fills) == len(self._parts):
            remember(joined, partial(_rebuild, tuple(buffer.shape), buffer.dtype, buffer.device, fills, self._widths()))
        return joined

    def _widths(self) -> list[int]:
        return [part.shape[1] for part in self._parts]


def _rebuild(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, fills: list[Fill], widths: list[int]
) -> Tensor:
    buffer = torch.empty(shape, dtype=dtype, device=device, memory_format=torch.channels_last)
    start = 0
    for fill, width in zip(fills, widths, strict=True):
        fill(channel_slice(buffer, start, width))
        start += width
    return buffer


class _Joined(torch.autograd.Function):
    """Hands on a buffer whose slices are the parts; in backward each part gets its slice of the gradient."""

    @staticmethod
    def forward(ctx: Any, holder: list[Tensor], *parts: Tensor) -> Tensor:
        # The buffer comes in a list: as an argument of its own it would be an input that is returned as it is.
        ctx.widths = [part.shape[1] for part in parts]
        return holder[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient, _ = as_rows(gradients[0])
        start = 0
        slices: list[Tensor | None] = [None]
        for width in ctx.widths:
            slices.append(channel_slice(gradient, start, width))
            start += width
        return tuple(slices)
