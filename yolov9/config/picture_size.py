"""Sizes of pictures that the models can take."""

import math

from yolov9.errors import UserError
from yolov9.logs import LOG

STRIDE = 32
"""Pixels a cell of the deepest feature map of every model; the sides of its pictures are multiples of it."""
LARGEST_SCALE = 1.5
"""`--multi-scale` goes up to this multiple of the picture size, and down to a half."""


def rounded_size(imgsz: float, stride: int = STRIDE) -> int:
    """Returns the smallest multiple of a stride that is not below a size in pixels."""
    return math.ceil(imgsz / stride) * stride


def fitting_size(imgsz: int, stride: int = STRIDE) -> int:
    """Returns the smallest multiple of a model's largest stride that is not below a size in pixels; says so.

    Raises:
        UserError: the size is below the stride.
    """
    if imgsz < stride:
        raise UserError(f"--img {imgsz}", f"a multiple of {stride}", f"--img {stride}")
    size = rounded_size(imgsz, stride)
    if size != imgsz:
        LOG.warning("--img %d is no multiple of %d; using %d", imgsz, stride, size)
    return size
