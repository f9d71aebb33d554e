"""Which detections are right: detections against labels of one picture, at several overlap levels. numpy only."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]

IOU_LEVELS: FloatArray = np.linspace(0.5, 0.95, 10, dtype=np.float32)
"""Overlap levels of mAP50-95."""
AREA_EPSILON = np.float32(1e-7)
"""Added to unions, so that boxes without area overlap nothing instead of dividing by 0."""


def box_overlaps(first: FloatArray, second: FloatArray) -> FloatArray:
    """IoU of every box of `first` (n, 4) with every box of `second` (m, 4), left, top, right, bottom: (n, m)."""
    left, top, right, bottom = np.ascontiguousarray(first.T, np.float32)[:, :, None]
    left_b, top_b, right_b, bottom_b = np.ascontiguousarray(second.T, np.float32)[:, None]
    width = (np.minimum(right, right_b) - np.maximum(left, left_b)).clip(min=0)
    height = (np.minimum(bottom, bottom_b) - np.maximum(top, top_b)).clip(min=0)
    overlap = width * height
    areas = (right - left) * (bottom - top) + (right_b - left_b) * (bottom_b - top_b)
    result: FloatArray = overlap / (areas - overlap + AREA_EPSILON)
    return result


def match_detections(detections: FloatArray, labels: FloatArray) -> NDArray[np.bool_]:
    """Marks the right detections of one picture at each overlap of `IOU_LEVELS`.

    A detection claims the label of its class that it overlaps most. A label that several detections claim goes to the
    one that comes first in the list, not to the one with the best overlap: the rule of YOLOv9's published scores.

    Args:
        detections: (n, 6) left, top, right, bottom, score, class; best score first.
        labels: (m, 5) class, left, top, right, bottom.

    Returns:
        (n, levels) bool.
    """
    number = len(detections)
    if number == 0 or len(labels) == 0:
        return np.zeros((number, len(IOU_LEVELS)), np.bool_)
    overlaps = box_overlaps(detections[:, :4], labels[:, 1:])
    overlaps[detections[:, 5:6] != labels[None, :, 0]] = -1
    claimed = overlaps.argmax(1)
    enough = overlaps[np.arange(number), claimed][:, None] >= IOU_LEVELS
    first = np.full((len(labels), len(IOU_LEVELS)), number)
    row, level = enough.nonzero()
    np.minimum.at(first, (claimed[row], level), row)
    right: NDArray[np.bool_] = enough & (first[claimed] == np.arange(number)[:, None])
    return right
