"""The window: pictures that were decoded a moment ago, shared by all workers, as partners in mosaics.

A mosaic needs four pictures. When its three partners come from those that other samples have just decoded, each picture
is decoded about once an epoch instead of four times. Which ones they are follows from the order alone: a partner of the
sample with sequence number s is the picture of one between `WINDOW_LAG + 1` and `WINDOW_LAG + window` before it. When
it is not there any more, or not yet, it is decoded again: what a worker finds here changes the time, never the sample.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from yolov9.config.loader_memory import WINDOW_LAG
from yolov9.data.augment import Picture
from yolov9.data.shared import round_up_to_page

CHANNELS = 3
EMPTY = -1


class WindowLayout(NamedTuple):
    """Sizes of a window; plain values, so that they can be sent as JSON."""

    places: int
    place_bytes: int
    """Room for one picture, in whole pages; only what is written takes memory."""

    @property
    def total_bytes(self) -> int:
        """Bytes of all places."""
        return self.places * self.place_bytes


def plan_window(window: int, samples_at_a_time: int, imgsz: int) -> WindowLayout:
    """Returns the layout of a window.

    Args:
        window: how many samples partners are chosen from.
        samples_at_a_time: samples that may be in the making at once. There are so many places that none of them uses a
            place that another one still needs, so that nothing has to be locked or copied.
        imgsz: training size; there is room for pictures up to twice as long.
    """
    longest = 2 * imgsz
    return WindowLayout(window + WINDOW_LAG + samples_at_a_time + 1, round_up_to_page(longest * longest * CHANNELS))


class Window:
    """View of the window in shared memory.

    Args:
        layout: its sizes.
        memory: (total_bytes,) pixels.
        heads: (places, 3) int64: number of the picture there (`EMPTY` while it is being written), height, width.
    """

    def __init__(self, layout: WindowLayout, memory: NDArray[np.uint8], heads: NDArray[np.int64]) -> None:
        self._layout = layout
        self._memory = memory
        self._heads = heads

    def get(self, sequence: int, number: int) -> Picture | None:
        """Returns a picture (a view), or None.

        Args:
            sequence: how many samples of this process came before the one that shows it first.
            number: of the picture.
        """
        place = sequence % self._layout.places
        found, height, width = self._heads[place].tolist()
        return self._pixels(place, height, width) if found == number else None

    def put(self, sequence: int, number: int, picture: Picture) -> None:
        """Shows a picture to the others.

        One that is larger than its place is left out: a photograph more than 16 times as long as the training size is
        that even at the strongest reduction. The others then decode it themselves.
        """
        if picture.nbytes > self._layout.place_bytes:
            return
        place = sequence % self._layout.places
        height, width = picture.shape[:2]
        self._heads[place, 0] = EMPTY
        self._pixels(place, height, width)[...] = picture
        self._heads[place, 1:] = height, width
        # Last: whoever reads it, also after this process was killed before it, finds all of the rest or nothing.
        self._heads[place, 0] = number

    def _pixels(self, place: int, height: int, width: int) -> Picture:
        start = place * self._layout.place_bytes
        return self._memory[start : start + height * width * CHANNELS].reshape(height, width, CHANNELS)


def empty_heads(layout: WindowLayout) -> NDArray[np.int64]:
    """Returns heads (places, 3) of a window with nothing in it."""
    return np.full((layout.places, 3), EMPTY, np.int64)
