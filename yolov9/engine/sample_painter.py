"""Makes the pictures of a batch on the device from what the loader's workers have written down: `--decode gpu`.

Everything happens on the stream that is current, which the training does not use. Only the host waits for the decoder.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yolov9.config.decode_memory import DECODED_AT_ONCE_BYTES
from yolov9.data.drawing import NO_MASK, Drawings
from yolov9.engine.jpeg_decoder import JpegDecoder, UndecodableError, shrink_planes
from yolov9.engine.picture_store import ALIGNMENT, PictureStore
from yolov9.ops import draw_samples as table
from yolov9.ops.draw_samples import draw_samples


class _Source(NamedTuple):
    """A picture that a sample shows; fields as in `yolov9.data.drawing.SOURCE`."""

    room: NDArray[np.uint8]
    """The sample's part of the slot."""
    picture: int
    start: int
    length: int
    size_hw: tuple[int, int]
    reduction: int
    is_jpeg: bool

    @property
    def stored_bytes(self) -> int:
        """Most that it takes in the store."""
        return 3 * self.size_hw[0] * self.size_hw[1] + ALIGNMENT

    @property
    def decoded_bytes(self) -> int:
        """Size of the decoded JPEG."""
        return self.stored_bytes * self.reduction**2

    def data(self) -> Tensor:
        """Returns what is in the slot."""
        return torch.from_numpy(self.room[self.start : self.start + self.length])


class SamplePainter:
    """Makes pictures of batches.

    Args:
        device: where.
        store_bytes: memory for decoded pictures, as from `picture_store_bytes`.
    """

    def __init__(self, device: torch.device, store_bytes: int) -> None:
        self._device = device
        self._store = PictureStore(store_bytes, device)
        self._decoder = JpegDecoder(device)

    def __call__(self, drawings: Drawings) -> Tensor:
        """Returns (B, H, W, 3) uint8, RGB. The slot is not needed any more once the current stream is done.

        Raises:
            UndecodableError: a picture cannot be decoded; the batch has to be made again without it.
            torch.OutOfMemoryError: there is no room for the pictures.
        """
        records = drawings.records()
        masks, mask_starts = _masks(drawings, records)
        on_device = self._upload(masks)
        out = torch.empty((len(records), *drawings.shape_hw, 3), dtype=torch.uint8, device=self._device)
        for part, wanted in self._groups(drawings, records):
            self._bring(wanted)
            floats, places = self._tables(records[part], mask_starts[part])
            draw_samples(self._store.memory, on_device, self._upload(floats), self._upload(places), out[part])
        return out

    def _upload(self, array: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(array)
        if self._device.type != "cuda":
            return tensor
        return tensor.pin_memory().to(self._device, non_blocking=True)

    def _groups(self, drawings: Drawings, records: NDArray[np.void]) -> Iterator[tuple[slice, dict[int, _Source]]]:
        """Yields parts of the batch whose pictures are in the store at the same time: usually all of it."""
        first, wanted, size, largest = 0, dict[int, _Source](), 0, 0
        for number, (room, record) in enumerate(zip(drawings.rooms, records, strict=True)):
            sources = (_Source(room, *row) for row in record["source"][: record["sources"]].tolist())
            shown = {source.picture: source for source in sources}
            more = sum(source.stored_bytes for picture, source in shown.items() if picture not in wanted)
            largest = max([largest, *(source.stored_bytes for source in shown.values())])
            # A gap at the end of the memory is smaller than the largest picture.
            if wanted and size + more + largest > len(self._store.memory):
                yield slice(first, number), wanted
                first, wanted, more = number, {}, sum(source.stored_bytes for source in shown.values())
                size = 0
            wanted.update(shown)
            size += more
        yield slice(first, len(records)), wanted

    def _bring(self, wanted: Mapping[int, _Source]) -> None:
        """Decodes what the store does not hold. What comes in may push out what is wanted, too; that comes in again."""
        while missing := [number for number in wanted if number not in self._store]:
            waiting: list[int] = []
            for number in missing:
                if not wanted[number].is_jpeg:
                    pixels = wanted[number].data().view(*wanted[number].size_hw, 3)
                    self._room(number, wanted).copy_(pixels.to(self._device).flip(-1).permute(2, 0, 1))
                    continue
                if waiting and sum(wanted[n].decoded_bytes for n in (*waiting, number)) > DECODED_AT_ONCE_BYTES:
                    self._decode(waiting, wanted)
                    waiting = []
                waiting.append(number)
            if waiting:
                self._decode(waiting, wanted)

    def _decode(self, numbers: Sequence[int], wanted: Mapping[int, _Source]) -> None:
        if self._device.type == "cuda":
            # The decoder writes on a stream of its own, into memory that may have been freed on this one just now.
            torch.cuda.current_stream(self._device).synchronize()
        for number, picture in self._decoder({number: wanted[number].data() for number in numbers}).items():
            shrunk = shrink_planes(picture, wanted[number].reduction)
            if shrunk.shape != (3, *wanted[number].size_hw):
                raise UndecodableError(number, "its pixels have another size than its header says")
            self._room(number, wanted).copy_(shrunk)

    def _room(self, number: int, wanted: Mapping[int, _Source]) -> Tensor:
        return self._store.room_for(number, *wanted[number].size_hw)

    def _tables(
        self, records: NDArray[np.void], mask_starts: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the tables of `draw_samples` for samples whose pictures are in the store.

        Sizes are those in the store, so that nothing is read beyond it, whatever happened to a file meanwhile.
        """
        found = np.zeros((*records["source"].shape, 3), np.int64)
        for row, record in enumerate(records):
            for place, number in enumerate(record["source"]["picture"][: record["sources"]].tolist()):
                found[row, place] = self._store[number]
        of_tiles = found[np.arange(len(records))[:, None, None], records["scene"]["tile"]["source"]]
        places = np.concatenate((mask_starts[..., None], of_tiles[..., 0]), axis=2)
        return table_floats(records, of_tiles[..., 1:]), places.reshape(len(records), table.TABLE_PLACES)


def table_floats(records: NDArray[np.void], sizes_hw: NDArray[np.int64]) -> NDArray[np.float32]:
    """Returns the table (B, TABLE_FLOATS) of `draw_samples`.

    Args:
        records: (B,) of drawings.
        sizes_hw: (B, SCENES, TILES, 2) of the source of each tile.
    """
    count, scenes = len(records), records["scene"]
    tiles = scenes["tile"]
    columns = (tiles["region"], tiles["offset_xy"], tiles["scale_xy"], tiles["average"][..., None], sizes_hw[..., ::-1])
    of_tiles = np.concatenate(columns, axis=3, dtype=np.float32)
    of_scenes = np.concatenate(
        (
            *(scenes["back"], scenes["canvas_width"][..., None], scenes["tiles"][..., None]),
            of_tiles.reshape(count, table.SCENES, table.TILES * table.TILE_FLOATS),
        ),
        axis=2,
        dtype=np.float32,
    )
    of_samples = np.stack((records["scenes"], records["ratio"], records["recolour"]), axis=1)
    flat = of_scenes.reshape(count, table.SCENES * table.SCENE_TOTAL)
    return np.concatenate((of_samples, records["factors"], flat), axis=1, dtype=np.float32)


def _masks(drawings: Drawings, records: NDArray[np.void]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Returns all masks of a batch one after the other (at least one byte), and where each begins: (B, 2)."""
    height, width = drawings.shape_hw
    size = height * (-(-width // 8))
    starts = records["scene"]["mask"].astype(np.int64)
    starts[np.arange(starts.shape[1]) >= records["scenes"][:, None]] = NO_MASK
    parts = [np.zeros(1, np.uint8)]
    end = 1
    for row, scene in zip(*np.nonzero(starts != NO_MASK), strict=True):
        parts.append(drawings.rooms[row][starts[row, scene] : starts[row, scene] + size])
        starts[row, scene] = end
        end += size
    return np.concatenate(parts), starts
