"""A drawing: what a sample shows, and the undecoded pictures that it shows, for a GPU to make the pixels of.

A worker writes it into the sample's part of a slot of the ring, in place of pixels: one record of `DRAWING`, then masks
and pictures. Offsets count from the start of that part.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from yolov9.config.loader_memory import MIXED_SAMPLES, MOSAIC_PICTURES
from yolov9.data.draw_turned import largest_scale
from yolov9.data.draw_upright import shown_pixels
from yolov9.data.geometry import Floats, is_affine, is_axis_aligned, warp_points
from yolov9.data.images import ImageError
from yolov9.data.reader import PictureReader, reduction_for
from yolov9.data.sample import UnreadableError, View
from yolov9.data.scene import Scene, pasted_mask
from yolov9.data.tiles import Rectangle, Tile
from yolov9.data.undecoded import Undecoded, fetch, place_bytes

NO_MASK = -1
ALIGNMENT = 16

SOURCE = np.dtype(
    [
        ("picture", "<i8"),
        ("start", "<i8"),
        ("length", "<i8"),
        ("size_hw", "<i4", 2),
        ("reduction", "<i4"),
        ("is_jpeg", "<i4"),
    ]
)
"""A picture of the sample; fields as in `Undecoded`."""
TILE = np.dtype(
    [
        ("region", "<f4", 4),
        ("offset_xy", "<f4", 2),
        ("scale_xy", "<f4", 2),
        ("average", "<f4"),
        ("source", "<i4"),
    ]
)
"""Where a source lies: x1, y1, x2, y2 on the canvas; its corner there; pixels of the source per canvas pixel; how many
of them, in each direction, are averaged to one before they are drawn; its number among the sources."""
SCENE = np.dtype(
    [
        ("back", "<f4", 9),
        ("canvas_width", "<f4"),
        ("tiles", "<i4"),
        ("mask", "<i8"),
        ("tile", TILE, MOSAIC_PICTURES),
    ]
)
"""Matrix from output to canvas, row by row; tiles in use; where its mask begins: (H, ceil(W / 8)), a bit a pixel, set
where the canvas is shown mirrored left-right (`NO_MASK`: nowhere)."""
DRAWING = np.dtype(
    [
        ("scenes", "<i4"),
        ("sources", "<i4"),
        ("ratio", "<f4"),
        ("recolour", "<i4"),
        ("factors", "<f4", 3),
        ("scene", SCENE, MIXED_SAMPLES),
        ("source", SOURCE, MIXED_SAMPLES * MOSAIC_PICTURES),
    ]
)
"""What `View` says."""


class Drawings(NamedTuple):
    """Those of one batch."""

    rooms: list[NDArray[np.uint8]]
    """Each sample's part of the slot."""
    shape_hw: tuple[int, int]
    """Of the samples."""

    def records(self) -> NDArray[np.void]:
        """Returns a copy of the records (B,)."""
        raw = np.stack([room[: DRAWING.itemsize] for room in self.rooms])
        return raw.view(DRAWING)[:, 0]


def drawing_bytes(imgsz: int, area: int) -> int:
    """Returns the room for one drawing.

    Args:
        imgsz: training size.
        area: pixels of the largest sample.
    """
    masks = MIXED_SAMPLES * (area + ALIGNMENT)  # rows of bits are padded to bytes, so this is generous
    pictures = MIXED_SAMPLES * MOSAIC_PICTURES * (place_bytes(imgsz) + ALIGNMENT)
    return _aligned(_aligned(DRAWING.itemsize) + masks + pictures)


def record_of(room: NDArray[np.uint8]) -> NDArray[np.void]:
    """Returns the record (1,) of a drawing as a view of its part of the slot."""
    return room[: DRAWING.itemsize].view(DRAWING)


class DrawingWriter:
    """Writes drawings; its `write` is for `SampleMaker.describe`.

    Args:
        reader: of the pictures.
        imgsz: training size.
    """

    def __init__(self, reader: PictureReader, imgsz: int) -> None:
        self._reader = reader
        self._imgsz = imgsz

    def into(self, room: NDArray[np.uint8]) -> Callable[[View], None]:
        """Returns a function that writes a view as a drawing into this part of a slot."""
        return lambda view: _Drawing(room, view, self._reader, self._imgsz).write()


class _Drawing:
    def __init__(self, room: NDArray[np.uint8], view: View, reader: PictureReader, imgsz: int) -> None:
        self._room = room
        self._view = view
        self._reader = reader
        self._imgsz = imgsz
        self._record = np.zeros(1, DRAWING)
        self._end = _aligned(DRAWING.itemsize)
        self._fetched: dict[int, tuple[int, Undecoded]] = {}
        """Number of a picture -> its place among the sources."""

    def write(self) -> None:
        record, view = self._record[0], self._view
        record["scenes"], record["ratio"] = len(view.scenes), view.ratio
        record["recolour"] = view.factors is not None
        record["factors"] = 1.0 if view.factors is None else view.factors
        for entry, scene in zip(record["scene"], view.scenes, strict=False):
            self._write_scene(entry, scene)
        record["sources"] = len(self._fetched)
        record_of(self._room)[...] = self._record

    def _write_scene(self, entry: np.void, scene: Scene) -> None:
        matrix, hw = self._view.flip @ scene.matrix, self._view.shape_hw
        back = np.linalg.inv(matrix)
        entry["back"] = (back / back[2, 2]).ravel()
        entry["canvas_width"] = scene.canvas_hw[1]
        entry["mask"] = NO_MASK
        mask = pasted_mask(scene, matrix, hw)
        pasted = bool(mask.any())
        if pasted:
            entry["mask"] = self._append(np.packbits(mask, axis=1, bitorder="little").ravel())
        count = 0
        for tile in scene.tiles:
            if _is_shown(tile.region, matrix, hw) or (pasted and _is_shown(_mirrored(tile.region, scene), matrix, hw)):
                self._write_tile(entry["tile"][count], tile, matrix)
                count += 1
        entry["tiles"] = count

    def _write_tile(self, entry: np.void, tile: Tile, matrix: Floats) -> None:
        place, source = self._source(tile.picture)
        scale = largest_scale(matrix @ tile.matrix())
        longer, kept = max(tile.source_wh), max(source.size_hw)
        if source.is_jpeg:
            average = reduction_for(longer, self._imgsz, scale) // source.reduction
        else:
            average = reduction_for(kept, self._imgsz, scale * longer / kept)
        entry["region"], entry["offset_xy"], entry["source"] = tile.region, tile.offset_xy, place
        entry["average"] = average
        entry["scale_xy"] = [tile.source_wh[a] / (tile.scaled_wh[a] * source.pitch_xy[a]) for a in (0, 1)]

    def _source(self, number: int) -> tuple[int, Undecoded]:
        if number not in self._fetched:
            try:
                found = fetch(self._reader, number, self._imgsz)
            except ImageError as error:
                raise UnreadableError(number, error) from None
            place = len(self._fetched)
            start = self._append(found.data.reshape(-1))
            self._record[0]["source"][place] = (
                *(number, start, found.data.size),
                *(found.size_hw, found.reduction, found.is_jpeg),
            )
            self._fetched[number] = place, found
        return self._fetched[number]

    def _append(self, data: NDArray[np.uint8]) -> int:
        start = self._end
        self._room[start : start + data.size] = data
        self._end = _aligned(start + data.size)
        return start


def _is_shown(region: Rectangle, matrix: Floats, hw: tuple[int, int]) -> bool:
    """Tells whether a part of the canvas is visible; of one that is turned and close to the edge, it may be wrong."""
    if is_axis_aligned(matrix):
        scales, shifts = matrix.diagonal().tolist(), matrix[:, 2].tolist()
        spans = [shown_pixels((region[a], region[a + 2]), scales[a], shifts[a], hw[1 - a]) for a in (0, 1)]
        return all(first < last for first, last in spans)
    if not is_affine(matrix):
        return True
    x1, y1, x2, y2 = region
    corners = warp_points(np.array(((x1, y1), (x2, y1), (x2, y2), (x1, y2)), np.float64), matrix)
    return bool((corners.max(axis=0) > 0).all() and (corners.min(axis=0) < (hw[1], hw[0])).all())


def _mirrored(region: Rectangle, scene: Scene) -> Rectangle:
    x1, y1, x2, y2 = region
    width = scene.canvas_hw[1]
    return width - x2, y1, width - x1, y2


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
