"""Which pictures join a sample's own one in a mosaic."""

from dataclasses import dataclass

import numpy as np

from yolov9.config.loader_memory import WINDOW_LAG
from yolov9.data.order import PictureOrder


@dataclass(frozen=True)
class Sequence:
    """The samples of one process, numbered over all epochs."""

    samples: int
    """Samples of the process in an epoch."""
    rank: int
    world: int

    def number(self, epoch: int, position: int) -> int:
        """Returns the sequence number of a sample."""
        return epoch * self.samples + position // self.world

    def at(self, number: int) -> tuple[int, int]:
        """Returns epoch and position of a sequence number; those before the first epoch are taken from the first."""
        epoch, place = divmod(number, self.samples)
        return max(epoch, 0), place * self.world + self.rank


class Partners:
    """Draws the partners of one sample.

    Args:
        rng: the sample's random numbers.
        order: which picture is where.
        window: partners come from so many samples shortly before this one; 0: from all pictures, evenly.
        sequence: the samples of this process.
        epoch, position: of this sample.
    """

    def __init__(
        self, rng: np.random.Generator, order: PictureOrder, window: int, sequence: Sequence, epoch: int, position: int
    ) -> None:
        self._rng = rng
        self._order = order
        self._window = window
        self._sequence = sequence
        self._own = sequence.number(epoch, position)
        self.sequence_of: dict[int, int] = {}
        """Sequence number of each picture that belongs to the window."""
        if window:
            self.sequence_of[order(epoch, position)] = self._own

    def draw(self) -> int:
        """Returns the number of a picture."""
        if not self._window:
            return int(self._rng.integers(self._order.count))
        number = self._own - WINDOW_LAG - 1 - int(self._rng.integers(self._window))
        picture = self._order(*self._sequence.at(number))
        self.sequence_of[picture] = number
        return picture
