"""Gives a worker the pixels of a picture by its number: from the cache, from the window, or from the file."""

from collections.abc import Callable, Mapping
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from yolov9.data.augment import Picture
from yolov9.data.brush import OPENCV, Brush
from yolov9.data.cache import DecodedCache, limited_hw
from yolov9.data.images import ImageError, read_image, shrink
from yolov9.data.letterbox import loaded_hw
from yolov9.data.tiles import Drawable
from yolov9.data.window import Window

REDUCTIONS = (8, 4, 2)
"""Scales at which `read_image` can read, besides the full one, strongest first."""


class PictureSource(Protocol):
    """The part of a data-set index that reading needs."""

    @property
    def sizes(self) -> NDArray[np.int32]:
        """(N, 2) upright width and height."""

    def path(self, number: int, /) -> str:
        """Absolute path of a picture."""


class PictureReader:
    """Reads pictures by number.

    Args:
        source: paths and sizes.
        imgsz: length that the longer side of cached pictures is limited to.
        cache: decoded pictures of all epochs, or None.
        window: recently decoded pictures, or None.
        reading: called with the number before a file is opened, so that a supervisor can name it.
        banned: (N,) non-zero for pictures that must not be opened (they killed a worker or made it hang).
        brush: halves pictures.
    """

    def __init__(
        self,
        source: PictureSource,
        imgsz: int,
        *,
        cache: DecodedCache | None = None,
        window: Window | None = None,
        reading: Callable[[int], None] | None = None,
        banned: NDArray[np.uint8] | None = None,
        brush: Brush = OPENCV,
    ) -> None:
        self._source = source
        self._imgsz = imgsz
        self._cache = cache
        self._window = window
        self._sequence_of: Mapping[int, int] = {}
        self._reading = reading
        self._banned = banned
        self._halve = brush.halve

    def size_wh(self, number: int) -> tuple[int, int]:
        """Returns upright width and height of a picture as the index has it."""
        width, height = self._source.sizes[number].tolist()
        return width, height

    def use_window_for(self, sequence_of: Mapping[int, int]) -> None:
        """Says which pictures of the sample at hand belong to the window: number of the picture -> sequence number."""
        self._sequence_of = sequence_of

    def read(self, number: int, scale: float) -> Drawable:
        """Returns a picture to be drawn at a scale (1: one picture pixel becomes one output pixel).

        The pixels are never coarser than needed for the scale or than a picture whose longer side is `imgsz`, whichever
        is less; the published recipe scales every picture to `imgsz` before anything else.

        Raises:
            ImageError: it cannot be read, or its size is not the one in the index any more.
        """
        size_wh = self.size_wh(number)
        if self._cache is not None and self._cache.has_place(number):
            kept = self._cached(number)
            height, width, _ = kept.shape
            longer = max(height, width)
            wanted = reduction_for(longer, self._imgsz, scale * max(size_wh) / longer)
            pitch = size_wh[0] / width * wanted, size_wh[1] / height * wanted
            return Drawable(shrink(kept, wanted, self._halve), pitch)
        wanted = reduction_for(max(size_wh), self._imgsz, scale)
        if self._window is None or number not in self._sequence_of:
            return Drawable(self._decode(number, wanted), (wanted, wanted))
        base = reduction_for(max(size_wh), self._imgsz, 1.0)
        return Drawable(shrink(self._shared(self._window, number, base), wanted // base, self._halve), (wanted, wanted))

    def load(self, number: int) -> Picture:
        """Returns a picture with its longer side scaled to `imgsz`: averaged when it shrinks, linear when it grows.

        Raises:
            ImageError: as `read`.
        """
        if self._cache is not None and self._cache.has_place(number):
            picture = self._cached(number)
        else:
            picture = limit_size(self._decode(number, 1), self._imgsz)
        width, height = self.size_wh(number)
        loaded = loaded_hw((height, width), self._imgsz)
        if picture.shape[:2] == loaded:
            return picture
        return np.asarray(cv2.resize(picture, loaded[::-1], interpolation=cv2.INTER_LINEAR), dtype=np.uint8)

    def _cached(self, number: int) -> Picture:
        assert self._cache is not None
        kept = self._cache.get(number)
        if kept is None:
            kept = limit_size(self._decode(number, 1), self._imgsz)
            self._cache.put(number, kept)
        return kept

    def _shared(self, window: Window, number: int, reduction: int) -> Picture:
        sequence = self._sequence_of[number]
        picture = window.get(sequence, number)
        if picture is None:
            picture = self._decode(number, reduction)
            window.put(sequence, number, picture)
        return picture

    def open_path(self, number: int) -> str:
        """Returns the path of a picture that is about to be read, and says so to the supervisor.

        Raises:
            ImageError: it must not be opened.
        """
        path = self._source.path(number)
        if self._banned is not None and self._banned[number]:
            raise ImageError(path, "left out: it made a worker hang or die, or no decoder can read it")
        if self._reading is not None:
            self._reading(number)
        return path

    def check_size(self, number: int, found_hw: tuple[int, int], reduction: int) -> None:
        """Compares the size of what was read at a reduction with that in the index.

        Raises:
            ImageError: it is another one.
        """
        width, height = self.size_wh(number)
        if found_hw != (-(-height // reduction), -(-width // reduction)):
            found = f"{found_hw[1]}x{found_hw[0]}"
            reason = f"is {found} pixels at 1/{reduction} now, was {width}x{height} in the scan"
            raise ImageError(self._source.path(number), reason)

    def _decode(self, number: int, reduction: int) -> Picture:
        picture = read_image(self.open_path(number), reduction)
        self.check_size(number, (picture.shape[0], picture.shape[1]), reduction)
        return picture


def reduction_for(longer_side: int, imgsz: int, scale: float) -> int:
    """Returns the strongest reduction that leaves pixels as fine as the output's, or as those of one of `imgsz`."""
    for reduction in REDUCTIONS:
        if reduction * scale <= 1.0 or longer_side >= reduction * imgsz:
            return reduction
    return 1


def limit_size(picture: Picture, imgsz: int) -> Picture:
    """Returns the picture with its longer side limited to `imgsz`, averaged; smaller pictures stay as they are."""
    hw = picture.shape[0], picture.shape[1]
    height, width = limited_hw(hw, imgsz)
    if (height, width) == hw:
        return picture
    return np.asarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA), dtype=np.uint8)
