"""Fits a picture into a shape without distorting it, with grey borders. No torch here."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

BORDER_GREY = 114
"""Value of border pixels in the published recipe."""
_HALF_PIXEL_SPLIT = 0.1
"""A border of odd width is one pixel wider at the bottom and right: round(p - 0.1) and round(p + 0.1)."""


@dataclass(frozen=True)
class LetterboxPlan:
    """Where the pixels of a picture go."""

    out_hw: tuple[int, int]
    """Height and width of the result."""
    content_hw: tuple[int, int]
    """Height and width of the resized picture inside it."""
    ratio_wh: tuple[float, float]
    """Scale in x and in y, before rounding to whole pixels."""
    pad_wh: tuple[float, float]
    """Border on each side in x and in y, in pixels; halves occur."""
    top: int
    """First row of the picture in the result."""
    left: int
    """First column of the picture in the result."""


def plan_letterbox(
    in_hw: tuple[int, int],
    new_shape: int | tuple[int, int] = 640,
    *,
    auto: bool = True,
    scale_fill: bool = False,
    scaleup: bool = True,
    stride: int = 32,
) -> LetterboxPlan:
    """Computes scale and borders.

    Args:
        in_hw: height and width of the picture.
        new_shape: side of a square, or height and width, in pixels.
        auto: keep only as much border as makes both sides multiples of `stride`.
        scale_fill: stretch to `new_shape` instead; no borders.
        scaleup: allow enlarging; False only shrinks.
        stride: the model's largest stride in pixels, for `auto`.
    """
    height, width = in_hw
    new_h, new_w = (new_shape, new_shape) if isinstance(new_shape, int) else new_shape
    if scale_fill and not auto:
        return LetterboxPlan((new_h, new_w), (new_h, new_w), (new_w / width, new_h / height), (0.0, 0.0), 0, 0)
    ratio = min(new_h / height, new_w / width)
    if not scaleup:
        ratio = min(ratio, 1.0)
    content_h, content_w = max(1, round(height * ratio)), max(1, round(width * ratio))
    border_h, border_w = new_h - content_h, new_w - content_w
    if auto:
        border_h, border_w = border_h % stride, border_w % stride
    pad_w, pad_h = border_w / 2, border_h / 2
    return LetterboxPlan(
        out_hw=(content_h + border_h, content_w + border_w),
        content_hw=(content_h, content_w),
        ratio_wh=(ratio, ratio),
        pad_wh=(pad_w, pad_h),
        top=round(pad_h - _HALF_PIXEL_SPLIT),
        left=round(pad_w - _HALF_PIXEL_SPLIT),
    )


def letterbox(
    image: NDArray[np.uint8],
    new_shape: int | tuple[int, int] = 640,
    *,
    auto: bool = True,
    scale_fill: bool = False,
    scaleup: bool = True,
    stride: int = 32,
) -> tuple[NDArray[np.uint8], LetterboxPlan]:
    """Resizes (linear) and pads a picture (height x width x 3, uint8); arguments as in `plan_letterbox`."""
    plan = plan_letterbox(
        (image.shape[0], image.shape[1]), new_shape, auto=auto, scale_fill=scale_fill, scaleup=scaleup, stride=stride
    )
    content_h, content_w = plan.content_hw
    if image.shape[:2] != plan.content_hw:
        image = np.asarray(cv2.resize(image, (content_w, content_h), interpolation=cv2.INTER_LINEAR), np.uint8)
    if plan.out_hw == plan.content_hw:
        return image, plan
    out = np.full((*plan.out_hw, 3), BORDER_GREY, np.uint8)
    out[plan.top : plan.top + content_h, plan.left : plan.left + content_w] = image
    return out, plan


def loaded_hw(in_hw: tuple[int, int], imgsz: int) -> tuple[int, int]:
    """Returns height and width after the longer side is scaled to `imgsz`; sizes are cut, not rounded."""
    ratio = imgsz / max(in_hw)
    if ratio == 1:
        return in_hw
    return max(1, int(in_hw[0] * ratio)), max(1, int(in_hw[1] * ratio))
