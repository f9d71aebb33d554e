"""Which JPEGs a GPU's decoder turns into the same colours as the CPU's: the plain ones, which nearly all are."""

import struct
from collections.abc import Iterator

from yolov9.data.headers import JPEG_BEGIN, JPEG_END, JPEG_FRAMES, JPEG_TAIL_BYTES, exif_orientation

_BASELINE = 0xC0
"""Marker of a baseline frame (ITU-T T.81, table B.1). Decoders in hardware read no others, and for a progressive one
nvJPEG would take the CPU of the trainer, which has better things to do than the loader's processes."""
_OTHER_FRAMES = JPEG_FRAMES - {_BASELINE}
_BITS = 8
_COLOURS = 3
_COMPONENTS = ((1, 2, 3), (0, 1, 2))
"""Component numbers of luminance and two colour differences; files with R, G and B are numbered by letters."""
_LUMINANCE_SAMPLINGS = frozenset({0x11, 0x21, 0x12, 0x22})
"""4:4:4, 4:2:2, 4:4:0 and 4:2:0: sampling factors of the luminance when those of the colour differences are 1 x 1."""
_SINGLE = 0x11
_ADOBE_RGB = 0
"""Colour transform of an Adobe segment: the three components are red, green and blue."""


def plain_jpeg_hw(data: bytes) -> tuple[int, int] | None:
    """Returns height and width of a complete, upright baseline JPEG in luminance and colour differences.

    None for all else.

    Args:
        data: the whole file.
    """
    if not data.startswith(JPEG_BEGIN) or JPEG_END not in data[-JPEG_TAIL_BYTES:]:
        return None
    try:
        for marker, body in _segments(data):
            if marker == 0xE1 and body[:6] == b"Exif\0\0" and exif_orientation(body[6:]) != 1:
                return None
            if marker == 0xEE and body[:5] == b"Adobe" and body[11] == _ADOBE_RGB:
                return None
            if marker in _OTHER_FRAMES:
                return None
            if marker == _BASELINE:
                return _plain_frame(body)
    except (struct.error, IndexError):
        pass
    return None


def _plain_frame(body: bytes) -> tuple[int, int] | None:
    bits, height, width, count = struct.unpack_from(">BHHB", body)
    if bits != _BITS or count != _COLOURS or not height or not width:
        return None
    numbers, samplings = tuple(body[6:15:3]), tuple(body[7:15:3])
    plain = numbers in _COMPONENTS and samplings[0] in _LUMINANCE_SAMPLINGS and samplings[1:] == (_SINGLE, _SINGLE)
    return (height, width) if plain else None


def _segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields marker and content of each segment in front of the picture data."""
    at = 2
    while True:
        while data[at] == 0xFF:
            at += 1
        marker = data[at]
        (length,) = struct.unpack_from(">H", data, at + 1)
        yield marker, data[at + 3 : at + 1 + length]
        at += 1 + length
        if data[at] != 0xFF:
            raise IndexError(at)
