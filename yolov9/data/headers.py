"""Reads format, stored size and rotation tag of a picture from its first bytes, without decoding it.

JPEG, PNG, BMP and WebP are parsed here; the layouts are those of ITU-T T.81 annex B, the PNG specification (chunks),
the BITMAPINFOHEADER documentation and RFC 9649. Other formats are left to Pillow (`yolov9.data.images`).
"""

import struct
from dataclasses import dataclass

HEAD_BYTES = 65536
"""Bytes of a file that hold the header of nearly every picture; one EXIF segment of a JPEG is at most this long."""

JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of a JPEG frame header (SOF0 … SOF15), which holds the size; C4, C8 and CC are other things."""
JPEG_BEGIN = b"\xff\xd8\xff"
JPEG_END = b"\xff\xd9"
"""The last marker of a complete JPEG, EOI."""
JPEG_TAIL_BYTES = 4096
"""The end marker is looked for here: cameras and editors append padding and small extras."""
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD9)})
"""JPEG markers without a length: TEM, RST0 … RST7, SOI."""
_ORIENTATION_TAG = 0x0112
_TRANSPOSED = frozenset({5, 6, 7, 8})
"""EXIF orientations in which width and height change places."""


@dataclass(frozen=True)
class ImageHeader:
    """What the first bytes of a picture say."""

    format: str
    """"jpeg", "png", "bmp" or "webp"."""
    width: int
    """Stored width in pixels, before the picture is turned upright."""
    height: int
    """Stored height in pixels."""
    orientation: int = 1
    """EXIF orientation 1 … 8; anything else in the file counts as 1."""

    @property
    def upright_wh(self) -> tuple[int, int]:
        """Width and height in pixels as a viewer shows the picture."""
        if self.orientation in _TRANSPOSED:
            return self.height, self.width
        return self.width, self.height


class TruncatedHeaderError(Exception):
    """The bytes given end before the header does."""


def parse_header(data: bytes) -> ImageHeader | None:
    """Parses the beginning of a file.

    Args:
        data: the first bytes of the file, or all of it.

    Returns:
        The header, or None when it is none of the four formats.

    Raises:
        TruncatedHeaderError: one of the four, but more bytes are needed.
    """
    try:
        if data.startswith(JPEG_BEGIN):
            return _parse_jpeg(data)
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            return _parse_png(data)
        if data.startswith(b"BM"):
            return _parse_bmp(data)
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return _parse_webp(data)
    except (struct.error, IndexError):
        raise TruncatedHeaderError from None
    return None


def exif_orientation(tiff: bytes) -> int:
    """Returns the orientation 1 … 8 in a block of EXIF data; 1 when there is none or the block is damaged.

    Args:
        tiff: EXIF data from its byte-order mark ("II" or "MM") on.
    """
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(order + "I", tiff, 4)
        (count,) = struct.unpack_from(order + "H", tiff, start)
        for entry in range(start + 2, start + 2 + 12 * count, 12):
            tag, kind = struct.unpack_from(order + "HH", tiff, entry)
            if tag == _ORIENTATION_TAG:
                (value,) = struct.unpack_from(order + ("I" if kind == 4 else "H"), tiff, entry + 8)
                return value if 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 1


def _parse_jpeg(data: bytes) -> ImageHeader:
    orientation = 1
    at = 2
    while True:
        while data[at] != 0xFF:
            at += 1
        while data[at] == 0xFF:
            at += 1
        marker = data[at]
        at += 1
        if marker in _JPEG_BARE:
            continue
        (length,) = struct.unpack_from(">H", data, at)
        if marker in JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 3)
            return ImageHeader("jpeg", width, height, orientation)
        if marker == 0xE1 and data[at + 2 : at + 8] == b"Exif\0\0" and orientation == 1:
            orientation = exif_orientation(data[at + 8 : at + length])
        at += length


def _parse_png(data: bytes) -> ImageHeader:
    width, height = struct.unpack_from(">II", data, 16)
    orientation = 1
    at = 8
    while True:
        length, kind = struct.unpack_from(">I4s", data, at)
        if kind in (b"IDAT", b"IEND"):
            return ImageHeader("png", width, height, orientation)
        if kind == b"eXIf":
            orientation = exif_orientation(data[at + 8 : at + 8 + length])
        at += 12 + length


def _parse_bmp(data: bytes) -> ImageHeader:
    (header_size,) = struct.unpack_from("<I", data, 14)
    if header_size == 12:  # BITMAPCOREHEADER of OS/2
        width, height = struct.unpack_from("<HH", data, 18)
    else:
        width, height = struct.unpack_from("<ii", data, 18)
    return ImageHeader("bmp", width, abs(height))  # a negative height means that rows run from the top


def _parse_webp(data: bytes) -> ImageHeader:
    kind = data[12:16]
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return ImageHeader("webp", width & 0x3FFF, height & 0x3FFF)
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return ImageHeader("webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    flags = data[20]
    width = int.from_bytes(data[24:27], "little") + 1
    height = int.from_bytes(data[27:30], "little") + 1
    orientation = _webp_orientation(data) if flags & 0x08 else 1
    return ImageHeader("webp", width, height, orientation)


def _webp_orientation(data: bytes) -> int:
    (riff_size,) = struct.unpack_from("<I", data, 4)
    at = 12
    while at + 8 <= riff_size + 8:
        kind, length = struct.unpack_from("<4sI", data, at)
        if kind == b"EXIF":
            block = data[at + 8 : at + 8 + length]
            return exif_orientation(block.removeprefix(b"Exif\0\0"))
        at += 8 + length + (length & 1)
    return 1
