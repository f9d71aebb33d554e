"""The picture size that a model can work with."""

import math

from yolov9.errors import UserError
from yolov9.logs import LOG


def fitting_size(imgsz: int, stride: int) -> int:
    """Returns the smallest multiple of a model's largest stride that is not below a size in pixels; says so.

    Raises:
        UserError: the size is below the stride.
    """
    if imgsz < stride:
        raise UserError(f"--img {imgsz}", f"a multiple of {stride}", f"--img {stride}")
    size = math.ceil(imgsz / stride) * stride
    if size != imgsz:
        LOG.warning("--img %d is no multiple of %d; using %d", imgsz, stride, size)
    return size
