"""Box conversions on numpy arrays, for loader workers (which do not import torch)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Boxes = NDArray[np.floating[Any]]


def xywhn_to_xyxy(boxes: Boxes, width: float, height: float, pad_w: float = 0.0, pad_h: float = 0.0) -> Boxes:
    """Converts normalised centre boxes to corners in pixels.

    Args:
        boxes: (n, 4) centre x, centre y, width, height; 0 … 1.
        width, height: size of the picture in pixels.
        pad_w, pad_h: border left and above that is added, in pixels.
    """
    out = np.empty_like(boxes)
    half_w, half_h = boxes[:, 2] / 2, boxes[:, 3] / 2
    out[:, 0] = width * (boxes[:, 0] - half_w) + pad_w
    out[:, 1] = height * (boxes[:, 1] - half_h) + pad_h
    out[:, 2] = width * (boxes[:, 0] + half_w) + pad_w
    out[:, 3] = height * (boxes[:, 1] + half_h) + pad_h
    return out


def xyxy_to_xywhn(boxes: Boxes, width: float, height: float, *, clip_margin: float | None = None) -> Boxes:
    """Converts corners in pixels to normalised centre boxes.

    Args:
        boxes: (n, 4) x1, y1, x2, y2.
        width, height: size of the picture in pixels.
        clip_margin: clip corners to the picture less this margin in pixels first; None leaves them.
    """
    if clip_margin is not None:
        boxes = clip_to_picture(boxes, width - clip_margin, height - clip_margin)
    out = np.empty_like(boxes)
    out[:, 0] = (boxes[:, 0] + boxes[:, 2]) / 2 / width
    out[:, 1] = (boxes[:, 1] + boxes[:, 3]) / 2 / height
    out[:, 2] = (boxes[:, 2] - boxes[:, 0]) / width
    out[:, 3] = (boxes[:, 3] - boxes[:, 1]) / height
    return out


def clip_to_picture(boxes: Boxes, width: float, height: float) -> Boxes:
    """Returns (n, 4) corner boxes with x in 0 … width and y in 0 … height."""
    out = boxes.copy()
    out[:, [0, 2]] = out[:, [0, 2]].clip(0, width)
    out[:, [1, 3]] = out[:, [1, 3]].clip(0, height)
    return out
