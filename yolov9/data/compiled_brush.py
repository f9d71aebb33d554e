"""`Brush` in C; see `brush.c`. It differs from OpenCV by one level in some two of a hundred values."""

import ctypes

import numpy as np

from yolov9.data.augment import Picture, bgr_to_rgb_with_hsv
from yolov9.data.brush import OPENCV, Brush, Line
from yolov9.data.geometry import Floats
from yolov9.logs import LOG

_POINTER, _BYTES, _INT = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int
_DOUBLE, _FLOAT = ctypes.c_double, ctypes.c_float
_PICTURE = (_POINTER, _BYTES, _INT, _INT)
"""First byte, bytes from row to row, height, width."""
_ALL = 256
"""`ONE` of the library."""
_KEPT, _OF_SOURCE, _OF_RESULT = range(3)
"""Which colours are changed."""


class CompiledBrush:
    """Draws with the library that `compiled.share_library` made.

    Args:
        library: as loaded.

    Raises:
        AttributeError: it is another library.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._recolour = library.recolour
        self._recolour.argtypes = [_POINTER, _BYTES, _POINTER, _INT, *_PICTURE, *[_FLOAT] * 3]
        self._recolour.restype = None
        self._halve = library.halve
        self._halve.argtypes = [*_PICTURE, *_PICTURE]
        self._halve.restype = _INT
        self._resample = library.resample
        self._resample.argtypes = [*_PICTURE, *_PICTURE, *[_DOUBLE] * 4, _INT, *[_FLOAT] * 3]
        self._resample.restype = _INT

    def recolour(self, picture: Picture, out: Picture, factors: Floats | None) -> None:
        """As `Brush` says."""
        if factors is None:
            bgr_to_rgb_with_hsv(picture, out, None)
            return
        assert out.shape == picture.shape, "the result has the size of the picture"
        self._recolour(*_described(picture)[:2], None, 0, *_described(out), *factors.tolist())

    def mix(self, first: Picture, second: Picture, ratio: float, out: Picture, factors: Floats | None) -> None:
        """As `Brush` says; the ratio is rounded to 1/256."""
        if factors is None:
            OPENCV.mix(first, second, ratio, out, None)
            return
        assert out.shape == first.shape == second.shape, "the result has the size of the pictures"
        assert first.strides == second.strides
        share = round((1.0 - ratio) * _ALL)
        other, *_ = _described(second)
        self._recolour(*_described(first)[:2], other, share, *_described(out), *factors.tolist())

    def resample(
        self, source: Picture, x: Line, y: Line, out: Picture, factors: Floats | None, *, colours_first: bool
    ) -> None:
        """As `Brush` says; shares of neighbouring pixels are rounded to 1/256."""
        if factors is None:
            change = _KEPT, 1.0, 1.0, 1.0
        else:
            change = _OF_SOURCE if colours_first else _OF_RESULT, *factors.tolist()
        if self._resample(*_described(source), *_described(out), *x, *y, *change):
            raise MemoryError(f"no memory to draw {out.shape[1]} x {out.shape[0]} pixels")

    def halve(self, picture: Picture) -> Picture:
        """As `Brush` says."""
        out = np.empty(((picture.shape[0] + 1) // 2, (picture.shape[1] + 1) // 2, 3), np.uint8)
        if self._halve(*_described(picture), *_described(out)):
            raise MemoryError(f"no memory to halve {picture.shape[1]} x {picture.shape[0]} pixels")
        return out


def load_brush(fd: int | None) -> Brush:
    """Returns the compiled brush from the memory that holds its library, or OpenCV's when there is none."""
    if fd is None:
        return OPENCV
    try:
        return CompiledBrush(ctypes.CDLL(f"/proc/self/fd/{fd}"))
    except (OSError, AttributeError) as error:  # memory that may not be executed, or a library without the functions
        LOG.info("samples are drawn by OpenCV: %s", error)
        return OPENCV


def _described(picture: Picture) -> tuple[int, int, int, int]:
    height, width, channels = picture.shape
    pitch, *within = picture.strides
    assert channels == 3
    assert within == [channels, 1], "pixels of a row are packed"
    assert height
    assert width
    return picture.ctypes.data, pitch, height, width
