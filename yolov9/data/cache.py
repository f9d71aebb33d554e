"""Decoded pictures for later epochs, in memory (memfd) or in a file of the cache folder; never in the data set folder.

Both have the same content: a header, one byte a picture that says whether it is there, then the pixels of each picture,
its longer side limited to the training size. Places are computed from the sizes in the index, so all processes, and all
jobs on the same data set, agree on them. What does not fit is decoded each time.
"""

import mmap
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from yolov9.data.augment import Picture
from yolov9.data.letterbox import loaded_hw
from yolov9.data.shared import round_up_to_page

HEADER_BYTES = mmap.PAGESIZE
"""Room for what a cache file says about itself."""
CHANNELS = 3


@dataclass(frozen=True, kw_only=True)
class CacheLayout:
    """Sizes of a cache; plain values, so that they can be sent as JSON."""

    imgsz: int
    kept: int
    """So many pictures have a place: the first ones of the index."""
    data_start: int
    """First byte of the first picture."""
    total_bytes: int


class DecodedCache:
    """View of a cache.

    Args:
        layout: its sizes.
        memory: (total_bytes,) all of it.
        offsets: (kept + 1,) first byte of each picture.
        sizes: (N, 2) upright width and height as in the index.
    """

    def __init__(
        self, layout: CacheLayout, memory: NDArray[np.uint8], offsets: NDArray[np.int64], sizes: NDArray[np.int32]
    ) -> None:
        self._layout = layout
        self._memory = memory
        self._there = memory[HEADER_BYTES : HEADER_BYTES + layout.kept]
        self._offsets = offsets
        self._sizes = sizes

    def has_place(self, number: int) -> bool:
        """True when the picture is one of those that are kept."""
        return number < self._layout.kept

    def get(self, number: int) -> Picture | None:
        """Returns the picture (a view), or None when it is not there yet."""
        return self._place(number) if self._there[number] else None

    def put(self, number: int, picture: Picture) -> None:
        """Keeps a picture. Two workers may do so at once: they write the same."""
        self._place(number)[...] = picture
        self._there[number] = 1

    def _place(self, number: int) -> Picture:
        width, height = self._sizes[number].tolist()
        height, width = limited_hw((height, width), self._layout.imgsz)
        start = int(self._offsets[number])
        return self._memory[start : start + height * width * CHANNELS].reshape(height, width, CHANNELS)


def limited_hw(hw: tuple[int, int], imgsz: int) -> tuple[int, int]:
    """Returns height and width of a picture in the cache: as loaded when it is longer than `imgsz`, else as it is."""
    return loaded_hw(hw, imgsz) if max(hw) > imgsz else hw


def plan_cache(sizes: NDArray[np.int32], imgsz: int, limit_bytes: int | None) -> tuple[CacheLayout, NDArray[np.int64]]:
    """Computes the places of as many pictures as fit.

    Returns:
        The layout and (kept + 1,) offsets.
    """
    longer = sizes.max(axis=1)
    ratio = imgsz / longer
    scaled = np.maximum((sizes * ratio[:, None]).astype(np.int64), 1)
    stored = np.where((longer > imgsz)[:, None], scaled, sizes)
    data_start = HEADER_BYTES + round_up_to_page(len(sizes))
    offsets = np.concatenate(([0], np.cumsum(stored.prod(axis=1) * CHANNELS))) + data_start
    kept = len(sizes)
    if limit_bytes is not None:
        kept = max(int(np.searchsorted(offsets, limit_bytes, side="right")) - 1, 0)
    layout = CacheLayout(imgsz=imgsz, kept=kept, data_start=data_start, total_bytes=int(offsets[kept]))
    return layout, offsets[: kept + 1]
