"""The ring: slots in shared memory, one batch each, that workers write and the trainer reads.

A slot has pictures (its page-locked part), one record a picture, and room for labels. Room for labels is generous: it
is address space, which takes memory only where something is written.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from yolov9.data.augment import Picture
from yolov9.data.sample import Sample
from yolov9.data.shared import create_memory, map_memory, round_up_to_page

RECORD = np.dtype(
    [
        ("picture", "<i8"),
        ("labels", "<i4"),
        ("mosaic", "<i4"),
        ("original_hw", "<i4", 2),
        ("ratio_hw", "<f8", 2),
        ("pad_wh", "<f8", 2),
    ]
)
"""What is known of one picture of a batch: fields of `Sample`, and how many labels it has."""
LABEL_COLUMNS = 5


@dataclass(frozen=True, kw_only=True)
class RingLayout:
    """Sizes of a ring; plain values, so that they can be sent as JSON."""

    slots: int
    rows: int
    """Pictures in a slot."""
    picture_bytes: int
    """Room for all pictures of a slot."""
    labels: int
    """Room for labels of one picture."""

    @property
    def slot_pictures_bytes(self) -> int:
        """Bytes of a slot's pictures, in whole pages."""
        return round_up_to_page(self.picture_bytes)

    @property
    def slot_rest_bytes(self) -> int:
        """Bytes of a slot's records and labels, in whole pages."""
        return round_up_to_page(self.rows * (RECORD.itemsize + self.labels * LABEL_COLUMNS * 4))

    @property
    def all_pictures_bytes(self) -> int:
        """Bytes of all pictures; they come first, so that one range can be page-locked."""
        return self.slots * self.slot_pictures_bytes


class Ring:
    """Views of a ring in shared memory.

    Args:
        layout: its sizes.
        fd: descriptor of its memory.
    """

    def __init__(self, layout: RingLayout, fd: int) -> None:
        self.layout = layout
        self._memory = map_memory(fd)
        self.bytes = np.frombuffer(self._memory, np.uint8)
        rest = [self._rest(slot) for slot in range(layout.slots)]
        self._records = [slot[: layout.rows * RECORD.itemsize].view(RECORD) for slot in rest]
        self._labels = [self._view_labels(slot[layout.rows * RECORD.itemsize :]) for slot in rest]

    def pictures(self, slot: int, count: int, height: int, width: int) -> Picture:
        """Returns the first pictures (count, H, W, 3) of a slot, RGB."""
        start = slot * self.layout.slot_pictures_bytes
        return self.bytes[start : start + count * height * width * 3].reshape(count, height, width, 3)

    def picture(self, slot: int, row: int, height: int, width: int) -> Picture:
        """Returns one picture (H, W, 3) of a slot."""
        size = height * width * 3
        start = slot * self.layout.slot_pictures_bytes + row * size
        return self.bytes[start : start + size].reshape(height, width, 3)

    def room(self, slot: int, row: int) -> NDArray[np.uint8]:
        """Returns the part of a slot's pictures that belongs to one sample, whatever is in it."""
        size = self.layout.picture_bytes // self.layout.rows
        start = slot * self.layout.slot_pictures_bytes + row * size
        return self.bytes[start : start + size]

    def records(self, slot: int) -> NDArray[np.void]:
        """Returns the records (rows,) of a slot."""
        return self._records[slot]

    def labels(self, slot: int, row: int) -> NDArray[np.float32]:
        """Returns the room (labels, 5) for the labels of one picture."""
        room: NDArray[np.float32] = self._labels[slot][row]
        return room

    def write(self, slot: int, row: int, sample: Sample) -> None:
        """Stores what belongs to a picture that has been written in place."""
        count = len(sample.labels)
        self.labels(slot, row)[:count] = sample.labels
        fit = sample.fit
        record = (sample.picture, count, sample.mosaic, fit.original_hw, fit.ratio_hw, fit.pad_wh)
        self.records(slot)[row] = record

    def _rest(self, slot: int) -> NDArray[np.uint8]:
        size = self.layout.slot_rest_bytes
        start = self.layout.all_pictures_bytes + slot * size
        return self.bytes[start : start + size]

    def _view_labels(self, memory: NDArray[np.uint8]) -> NDArray[np.float32]:
        shape = self.layout.rows, self.layout.labels, LABEL_COLUMNS
        return memory[: 4 * math.prod(shape)].view(np.float32).reshape(shape)


def create_ring_memory(layout: RingLayout) -> int:
    """Returns the descriptor of memory for a ring."""
    return create_memory("yolov9-ring", layout.all_pictures_bytes + layout.slots * layout.slot_rest_bytes)
