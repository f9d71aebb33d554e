"""Reads pictures: any common format by its content, upright, as 8-bit BGR; one rule for scan, training, detection.

No torch here: loader workers import this module.
"""

import io
import os
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from yolov9.data.headers import JPEG_END, ImageHeader, TruncatedHeaderError, parse_header

MAX_PIXELS = 178_956_970
"""Largest picture that is decoded (0.5 GiB as BGR); Pillow refuses pictures above the same size."""

_REDUCED_FLAGS = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}
"""Scales at which a JPEG can be decoded without computing the full picture (the DCT sizes of libjpeg)."""
_MODES_WITHOUT_RANGE = ("F", "I")
"""Pillow's modes of 32-bit numbers; those of science lie in any range, and between 0 and 1 they would all be black."""

Pixels = NDArray[np.uint8]
PathLike = str | bytes | Path


class ImageError(Exception):
    """A file that cannot be used as a picture.

    Args:
        path: the file.
        reason: what is wrong with it, in a few words.
    """

    def __init__(self, path: PathLike, reason: str) -> None:
        super().__init__(path, reason)
        self.path = os.fsdecode(path)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def read_image(path: PathLike, reduce: int = 1) -> Pixels:
    """Reads one picture.

    Args:
        path: file to read; the format is told by its content, not by its name.
        reduce: 1, 2, 4 or 8: return the picture at that fraction of its size (rounded up); much faster for JPEGs.

    Returns:
        uint8 array, height x width x 3 (blue, green, red), contiguous, turned upright by its EXIF orientation. Grey is
        repeated in three channels, 16-bit values are scaled to 8 bits, palettes are expanded, CMYK is converted, alpha
        is left out, of an animation the first frame is taken. A JPEG without end marker is read as far as it goes.

    Raises:
        ImageError: missing, empty, not a picture, damaged, or larger than `MAX_PIXELS`.
    """
    try:
        data = Path(os.fsdecode(path)).read_bytes()
    except OSError as error:
        raise ImageError(path, error.strerror or "cannot be read") from None
    try:
        return decode_image(data, reduce)
    except ValueError as error:
        raise ImageError(path, str(error)) from None


def decode_image(data: bytes, reduce: int = 1) -> Pixels:
    """Decodes a picture from memory; see `read_image`.

    Raises:
        ValueError: with the reason in a few words.
    """
    if not data:
        raise ValueError("empty file")
    try:
        header = parse_header(data)
    except TruncatedHeaderError:
        raise ValueError("cut off in its header") from None
    if header is None:
        return shrink(_decode_other(data), reduce)
    refuse_bomb(header.width, header.height)
    return turn_upright(_decode_common(data, header, reduce), header.orientation)


def refuse_bomb(width: int, height: int) -> None:
    """Checks a size that a header claims, before memory is taken for it.

    Raises:
        ValueError: no area, or more than `MAX_PIXELS`.
    """
    if width < 1 or height < 1:
        raise ValueError(f"header claims {width}x{height} pixels")
    if width * height > MAX_PIXELS:
        raise ValueError(f"header claims {width}x{height} pixels, more than {MAX_PIXELS}")


def turn_upright(image: Pixels, orientation: int) -> Pixels:
    """Applies an EXIF orientation (1 … 8) to stored pixels and returns the picture as viewers show it."""
    match orientation:
        case 2:
            turned = cv2.flip(image, 1)
        case 3:
            turned = cv2.rotate(image, cv2.ROTATE_180)
        case 4:
            turned = cv2.flip(image, 0)
        case 5:
            turned = cv2.transpose(image)
        case 6:
            turned = cv2.rotate(image, cv2.ROTATE_90_CLOCKWISE)
        case 7:
            turned = cv2.flip(cv2.transpose(image), -1)
        case 8:
            turned = cv2.rotate(image, cv2.ROTATE_90_COUNTERCLOCKWISE)
        case _:
            return image
    return np.asarray(turned, np.uint8)


def _decode_common(data: bytes, header: ImageHeader, reduce: int) -> Pixels:
    """Decodes one of the formats of `parse_header`; pixels as stored."""
    in_decoder = reduce if header.format == "jpeg" else 1
    if header.format == "jpeg" and not data.endswith(JPEG_END):
        data += JPEG_END  # keeps libjpeg from complaining on standard error about a missing end marker
    # OpenCV versions differ in which formats they turn upright, so it is never left to them.
    flags = _REDUCED_FLAGS[in_decoder] | cv2.IMREAD_IGNORE_ORIENTATION
    image = _opencv(data, flags)
    if image is None:
        image = _pillow(data, upright=False)
    if image is None:
        raise ValueError(f"damaged {header.format.upper()}")
    return shrink(image, reduce // in_decoder)


def _decode_other(data: bytes) -> Pixels:
    """Decodes TIFF, GIF, AVIF and whatever else the installed decoders know; upright."""
    Image.MAX_IMAGE_PIXELS = None  # `refuse_bomb` judges instead; Pillow would warn about pictures that are fine here
    try:
        with Image.open(io.BytesIO(data)) as picture:
            width, height = picture.size
            kind, mode = picture.format, picture.mode
    except Exception:  # Pillow's plug-ins raise a dozen types for damaged files
        raise ValueError("not a picture that can be read") from None
    refuse_bomb(width, height)
    if mode in _MODES_WITHOUT_RANGE:
        raise ValueError("32-bit values, of which nobody knows which is white; save it with 8 or 16 bits")
    image = _opencv(data, cv2.IMREAD_COLOR) if kind == "TIFF" else _pillow(data, upright=True)
    if image is None:
        image = _pillow(data, upright=True) if kind == "TIFF" else _opencv(data, cv2.IMREAD_COLOR)
    if image is None:
        raise ValueError(f"damaged {kind}")
    return image


def _opencv(data: bytes, flags: int) -> Pixels | None:
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error:
        return None
    return None if image is None else np.asarray(image, np.uint8)


def _pillow(data: bytes, *, upright: bool) -> Pixels | None:
    try:
        with Image.open(io.BytesIO(data)) as picture:
            shown = ImageOps.exif_transpose(picture) if upright else picture
            if shown.mode.startswith("I;16"):  # Pillow would clip 16-bit grey to white
                grey = (np.asarray(shown) >> 8).astype(np.uint8)
                return np.ascontiguousarray(np.repeat(grey[..., None], 3, axis=2))
            return np.ascontiguousarray(np.asarray(shown.convert("RGB"))[..., ::-1])
    except Exception:  # as above
        return None


def halve(picture: Pixels) -> Pixels:
    """Returns the averages of two by two pixels; where a size is odd, the edge is repeated."""
    height, width = picture.shape[:2]
    if height % 2 or width % 2:
        picture = np.asarray(cv2.copyMakeBorder(picture, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE))
    size = (width + 1) // 2, (height + 1) // 2
    return np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)


def shrink(picture: Pixels, reduction: int, halve: Callable[[Pixels], Pixels] = halve) -> Pixels:
    """Returns 1/reduction (a power of two) of a picture by halving, much like a JPEG decoded at that scale."""
    while reduction > 1:
        picture = halve(picture)
        reduction //= 2
    return picture
