"""Detections as the text of a YOLO label file."""

import numpy as np
from numpy.typing import NDArray

SIGNIFICANT_DIGITS = 6


def label_text(rows: NDArray[np.floating], size_hw: tuple[int, int], *, with_scores: bool) -> str:
    """Returns one line per detection: class, centre x, centre y, width, height, normalised, and perhaps the score.

    Args:
        rows: (n, 6) x1, y1, x2, y2 in pixels of the picture, score, class.
        size_hw: height and width of the picture in pixels.
        with_scores: add the score at the end of each line.
    """
    height, width = size_hw
    corners = rows[:, :4].astype(np.float64) / [width, height, width, height]
    centres, sides = (corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]
    columns = [centres, sides, rows[:, 4:5]] if with_scores else [centres, sides]
    lines = []
    for number, values in zip(rows[:, 5].astype(int), np.concatenate(columns, 1), strict=True):
        lines.append(" ".join([str(number), *(f"{value:.{SIGNIFICANT_DIGITS}g}" for value in values)]) + "\n")
    return "".join(lines)
