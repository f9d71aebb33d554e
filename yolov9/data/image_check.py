"""Checks a picture file at scan time: size, format and whether it is complete. Cheap for the formats that matter."""

import io
import os
import zlib
from dataclasses import dataclass

import numpy as np
from PIL import Image

from yolov9.data.headers import (
    HEAD_BYTES,
    JPEG_BEGIN,
    JPEG_END,
    JPEG_TAIL_BYTES,
    ImageHeader,
    TruncatedHeaderError,
    parse_header,
)
from yolov9.data.images import ImageError, decode_image, refuse_bomb

SMALLEST_SIDE = 10
"""Pictures with a shorter side are of no use (rule of the published recipe)."""
LARGEST_LOSS = 0.05
"""Share of the rows of a JPEG that may be missing at its end for it to be used all the same."""

_CUT_OFF = "cut off: part of the picture is missing"
_FILLER = bytes([0x55, 0xAA, 0x3C, 0x5A]) * 4096
"""Bytes that decode to some texture when a JPEG decoder takes them for picture data."""


@dataclass(frozen=True)
class CheckedImage:
    """A picture that can be used."""

    width: int
    """Upright width in pixels."""
    height: int
    """Upright height in pixels."""
    note: str = ""
    """Why it needs lenient reading; "" for a sound file."""


def check_image(path: str) -> CheckedImage:
    """Checks one file without decoding it, except for rare formats and JPEGs that look cut off.

    Raises:
        ImageError: it cannot be used; the reason tells why.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(HEAD_BYTES)
            try:
                try:
                    header = parse_header(head)
                except TruncatedHeaderError:
                    head += file.read()
                    header = parse_header(head)
                width, height, note = _check(file, size, header)
            except TruncatedHeaderError:
                raise ValueError("cut off in its header") from None
    except OSError as error:
        raise ImageError(path, error.strerror or "cannot be read") from None
    except ValueError as error:
        raise ImageError(path, str(error)) from None
    if min(width, height) < SMALLEST_SIDE:
        raise ImageError(path, f"smaller than {SMALLEST_SIDE} pixels")
    suffix = path.rpartition(".")[2].lower()
    if not note and header is not None and _SAME_NAME.get(suffix, suffix) != header.format:
        note = f"{header.format.upper()} data under another name"
    return CheckedImage(width, height, note)


def is_cut_off(path: str) -> bool:
    """Says whether a file is a JPEG that lacks rows; all other formats cannot be decoded then.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        if file.read(len(JPEG_BEGIN)) != JPEG_BEGIN:
            return False
        try:
            _check_jpeg(file, os.fstat(file.fileno()).st_size)
        except ValueError:
            return True
    return False


_SAME_NAME = {"jpg": "jpeg", "mpo": "jpeg"}


def _check(file: io.BufferedReader, size: int, header: ImageHeader | None) -> tuple[int, int, str]:
    if size == 0:
        raise ValueError("empty file")
    if header is None:
        file.seek(0)
        image = decode_image(file.read())
        return image.shape[1], image.shape[0], ""
    refuse_bomb(header.width, header.height)
    note = ""
    if header.format == "jpeg":
        note = _check_jpeg(file, size)
    elif header.format == "png":
        _check_png(file)
    elif header.format == "bmp":
        _check_bmp(file, size, header)
    else:
        _check_webp(file, size)
    return *header.upright_wh, note


def _check_jpeg(file: io.BufferedReader, size: int) -> str:
    """Returns a note for a JPEG without end marker whose pixels are there; refuses one that lacks rows."""
    file.seek(max(0, size - JPEG_TAIL_BYTES))
    if JPEG_END in file.read():
        return ""
    file.seek(0)
    lost = _share_of_lost_rows(file.read())
    if lost > LARGEST_LOSS:
        raise ValueError(_CUT_OFF)
    return "JPEG without its end marker"


def _share_of_lost_rows(data: bytes) -> float:
    """Returns the share of rows that a cut JPEG does not hold.

    The file is decoded twice, ended at once and continued with filler: the decoder turns filler into pixels only where
    picture data is missing, so rows that are the same both times were in the file.
    """
    ended, continued = _decode_rows(data + JPEG_END), _decode_rows(data + _FILLER + JPEG_END)
    if ended is None or continued is None:
        return 1.0
    differs = (ended != continued).any(axis=(1, 2))
    first = int(differs.argmax()) if differs.any() else len(differs)
    return 1 - first / len(differs)


def _decode_rows(data: bytes) -> np.ndarray | None:
    try:
        with Image.open(io.BytesIO(data)) as picture:
            return np.asarray(picture.convert("RGB"))
    except Exception:  # Pillow raises a dozen types for damaged files
        return None


def _check_png(file: io.BufferedReader) -> None:
    """Walks the chunks up to the end chunk and compares their checksums."""
    file.seek(8)
    while True:
        start = file.read(8)
        length = int.from_bytes(start[:4], "big")
        body = file.read(length + 4) if len(start) == 8 else b""
        if len(body) < length + 4:
            raise ValueError(_CUT_OFF)
        if zlib.crc32(body[:length], zlib.crc32(start[4:])) != int.from_bytes(body[length:], "big"):
            raise ValueError("damaged PNG: wrong checksum")
        if start[4:] == b"IEND":
            return


def _check_bmp(file: io.BufferedReader, size: int, header: ImageHeader) -> None:
    """Compares the pixels that the header announces with the length of the file (a stated length is often wrong)."""
    file.seek(10)
    start = int.from_bytes(file.read(4), "little")
    file.seek(28)
    bits, compression = int.from_bytes(file.read(2), "little"), int.from_bytes(file.read(4), "little")
    row_bytes = (header.width * bits + 31) // 32 * 4
    if compression == 0 and size < start + row_bytes * header.height:
        raise ValueError(_CUT_OFF)


def _check_webp(file: io.BufferedReader, size: int) -> None:
    """Compares the length that the container states with that of the file."""
    file.seek(4)
    if size < int.from_bytes(file.read(4), "little") + 8:
        raise ValueError(_CUT_OFF)
