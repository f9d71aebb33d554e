"""Box conversions on numpy arrays, for loader workers (which do not import torch)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Boxes = NDArray[np.floating[Any]]


def xywhn_to_xyxy(boxes: Boxes, size_wh: Boxes, pad_wh: Boxes) -> Boxes:
    """Converts normalised centre boxes to corners in pixels.

    Args:
        boxes: (n, 4) centre x, centre y, width, height; 0 … 1.
        size_wh: (2,) or (n, 2) size of the picture in pixels.
        pad_wh: (2,) or (n, 2) border left and above that is added, in pixels.
    """
    centre, half = boxes[:, :2], boxes[:, 2:] / 2
    return np.concatenate((size_wh * (centre - half) + pad_wh, size_wh * (centre + half) + pad_wh), axis=1)


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
    limit = np.array((width, height, width, height), boxes.dtype)
    return np.maximum(np.minimum(boxes, limit), 0)
