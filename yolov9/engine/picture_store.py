"""Decoded pictures on the device, for samples to be drawn from: the mosaic window of `--decode gpu`.

The newest take the place of the oldest, like in a tape that goes round. What is not there any more is decoded again:
what is found here changes the time, never the sample.
"""

from collections import OrderedDict
from typing import NamedTuple

import torch
from torch import Tensor

ALIGNMENT = 16
"""Bytes; where a picture may begin."""


class Place(NamedTuple):
    """Where a picture lies."""

    start: int
    height: int
    width: int


class PictureStore:
    """A fixed amount of memory with pictures (3, H, W), found by number.

    Args:
        size_bytes: of the memory.
        device: where it is.
    """

    def __init__(self, size_bytes: int, device: torch.device) -> None:
        self.memory = torch.empty(size_bytes, dtype=torch.uint8, device=device)
        self._places: OrderedDict[int, Place] = OrderedDict()
        """In the order in which they lie on the tape."""
        self._end = 0

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def __getitem__(self, number: int) -> Place:
        return self._places[number]

    def room_for(self, number: int, height: int, width: int) -> Tensor:
        """Returns memory (3, H, W) for a picture, which counts as there from now on.

        Raises:
            ValueError: it is larger than all of the memory.
        """
        size = 3 * height * width
        if size > len(self.memory):
            raise ValueError(f"a picture of {width}x{height} pixels does not fit into {len(self.memory)} bytes")
        start = -(-self._end // ALIGNMENT) * ALIGNMENT
        if start + size > len(self.memory):
            self._give_way(start, len(self.memory))
            start = 0
        self._give_way(start, start + size)
        self._places.pop(number, None)
        self._places[number] = Place(start, height, width)
        self._end = start + size
        return self.memory[start : start + size].view(3, height, width)

    def _give_way(self, start: int, end: int) -> None:
        """Forgets the oldest pictures as long as they lie in this part."""
        while self._places:
            number, place = next(iter(self._places.items()))
            if place.start >= end or place.start + 3 * place.height * place.width <= start:
                return
            del self._places[number]
