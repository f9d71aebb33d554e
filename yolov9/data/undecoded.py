"""Gives a worker the pictures of a sample as they are in their files, for a GPU to decode.

What a GPU's decoder cannot do, or not as the CPU's does it, is decoded here: other formats, grey and CMYK pictures,
turned ones, damaged ones, and those that would take much memory.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from yolov9.data.images import ImageError, decode_image
from yolov9.data.jpeg_form import plain_jpeg_hw
from yolov9.data.reader import PictureReader, limit_size, reduction_for
from yolov9.data.window import CHANNELS

MOST_PIXELS = 1 << 24
"""A larger picture (4096 x 4096) is decoded on the CPU, which does so at a reduced scale for a part of the work; on the
GPU it would take 50 MB."""
LEAST_SIDE = 640
"""Files of photographs are as large when the training size is small."""


class Undecoded(NamedTuple):
    """One picture."""

    data: NDArray[np.uint8]
    """Content of a JPEG file, or pixels (H, W, 3: blue, green, red)."""
    is_jpeg: bool
    size_hw: tuple[int, int]
    """Size of the pixels that are drawn from, after `reduction`."""
    reduction: int
    """The decoded JPEG is to be shrunk by this; 1 for pixels."""
    pitch_xy: tuple[float, float]
    """Width and height of one of these pixels, in pixels of the full picture."""


def place_bytes(imgsz: int) -> int:
    """Returns the most that `data` takes."""
    return max(imgsz, LEAST_SIDE) ** 2 * CHANNELS


def fetch(reader: PictureReader, number: int, imgsz: int) -> Undecoded:
    """Reads one picture.

    Args:
        reader: paths, sizes, and who is told.
        number: of the picture.
        imgsz: training size. A JPEG that is at least twice as long will be shrunk after decoding; pixels are no longer
            than this.

    Raises:
        ImageError: it cannot be read, or its size is not the one in the index any more.
    """
    path = reader.open_path(number)
    width, height = reader.size_wh(number)
    reduction = reduction_for(max(width, height), imgsz, 1.0)
    try:
        data = Path(path).read_bytes()
        found_hw = plain_jpeg_hw(data) if len(data) <= place_bytes(imgsz) else None
        if found_hw is not None and found_hw[0] * found_hw[1] <= MOST_PIXELS:
            reader.check_size(number, found_hw, 1)
            size_hw = -(-height // reduction), -(-width // reduction)
            pitch_xy = float(reduction), float(reduction)
            return Undecoded(np.frombuffer(data, np.uint8), True, size_hw, reduction, pitch_xy)
        decoded = decode_image(data, reduction)
    except OSError as error:
        raise ImageError(path, error.strerror or "cannot be read") from None
    except ValueError as error:
        raise ImageError(path, str(error)) from None
    reader.check_size(number, (decoded.shape[0], decoded.shape[1]), reduction)
    picture = limit_size(decoded, imgsz)
    size_hw = picture.shape[0], picture.shape[1]
    return Undecoded(picture, False, size_hw, 1, (width / size_hw[1], height / size_hw[0]))
