"""Colour, blending and copy-paste. Pictures are HWC uint8; random numbers come in as arguments or from a generator."""

import cv2
import numpy as np
from numpy.typing import NDArray

from yolov9.data.geometry import Floats

Picture = NDArray[np.uint8]

_DIAGONAL = (0, 1, 2), (0, 1, 2)
_ROUND_TO_CUT_OFF = -0.49999
"""Added before OpenCV rounds, so that 3.0 … 3.9999 become 3, as in the published recipe's tables."""
MIXUP_BETA = 32.0
"""Both parameters of the Beta distribution of the blending ratio; published recipe."""
COPY_PASTE_MAX_OVERLAP = 0.30
"""A mirrored object may cover less than this share of every object that is there already; published recipe."""
TINY = 1e-16
"""Keeps divisions by empty boxes finite."""


def hsv_factors(rng: np.random.Generator, gains: tuple[float, float, float]) -> Floats:
    """Draws the factors (3,) of hue, saturation and value: 1 + gain x uniform(-1, 1)."""
    return np.asarray(1.0 + rng.uniform(-1.0, 1.0, 3) * gains)


def scale_hsv(hsv: Picture, factors: Floats) -> None:
    """Multiplies hue, saturation and value in place, cut off to whole levels and limited to 255.

    A hue may come out as 180 … 182, which OpenCV takes for 0 … 2 when it converts back.
    """
    matrix = np.zeros((3, 4), np.float32)
    matrix[_DIAGONAL] = factors
    matrix[:, 3] = _ROUND_TO_CUT_OFF
    cv2.transform(hsv, matrix, dst=hsv)


def scaled_grey(level: int, factors: Floats) -> int:
    """Returns what the factors make of a grey: it has no hue and no saturation."""
    return min(int(level * np.float32(factors[2])), 255)


def bgr_to_rgb_with_hsv(picture: Picture, out: Picture, factors: Floats | None) -> None:
    """Changes the colours of a BGR picture and writes it as RGB.

    Args:
        picture: BGR.
        out: RGB picture of the same size; may be `picture`, or part of a larger one.
        factors: as from `hsv_factors`, or None for no change.
    """
    if factors is None:
        cv2.cvtColor(picture, cv2.COLOR_BGR2RGB, dst=out)
        return
    hsv = np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2HSV), np.uint8)
    scale_hsv(hsv, factors)
    cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB, dst=out)


def mixup_ratio(rng: np.random.Generator) -> float:
    """Draws the share of the first picture."""
    return float(rng.beta(MIXUP_BETA, MIXUP_BETA))


def mixup(first: Picture, second: Picture, ratio: float) -> None:
    """Blends `second` into `first`, in place; the labels of both count in full."""
    cv2.addWeighted(first, ratio, second, 1.0 - ratio, 0.0, dst=first)


def flip_labels(labels: Floats, *, upside_down: bool, left_right: bool) -> None:
    """Mirrors rows class, cx, cy, w, h (normalised) in place."""
    if upside_down:
        labels[:, 2] = 1.0 - labels[:, 2]
    if left_right:
        labels[:, 1] = 1.0 - labels[:, 1]


def mirror_boxes(boxes: Floats, width: float) -> Floats:
    """Returns boxes (n, 4: x1, y1, x2, y2) mirrored left-right in a picture of that width."""
    mirrored = boxes.copy()
    mirrored[:, 0], mirrored[:, 2] = width - boxes[:, 2], width - boxes[:, 0]
    return mirrored


def copy_paste_candidates(boxes: Floats, has_polygon: NDArray[np.bool_], width: float) -> NDArray[np.intp]:
    """Returns the numbers of objects whose mirror image covers less than 30 % of every object.

    Args:
        boxes: (n, 4) pixels, of all objects, with and without outline.
        has_polygon: (n,) objects that can be cut out.
        width: of the picture.
    """
    numbers = np.flatnonzero(has_polygon)
    covered = covered_share(mirror_boxes(boxes[numbers], width), boxes)
    return np.asarray(numbers[(covered < COPY_PASTE_MAX_OVERLAP).all(axis=1)], dtype=np.intp)


def covered_share(first: Floats, second: Floats) -> Floats:
    """Share of each box of `second` (m, 4) that lies inside each box of `first` (n, 4): (n, m)."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    area = (second[:, 2] - second[:, 0]) * (second[:, 3] - second[:, 1])
    return np.asarray((high - low).clip(0).prod(axis=2) / (area + TINY))


def copy_paste_choice(rng: np.random.Generator, candidates: NDArray[np.intp], share: float) -> NDArray[np.intp]:
    """Picks the given share of the candidates (rounded, halves to even), without repetition."""
    return np.asarray(rng.choice(candidates, round(share * len(candidates)), replace=False), dtype=np.intp)


def outline_mask(polygons: list[Floats], size_hw: tuple[int, int]) -> Picture:
    """Returns a mask (H, W) that is 1 inside the polygons (pixels, cut off to whole numbers) and 0 elsewhere."""
    mask = np.zeros(size_hw, np.uint8)
    for polygon in polygons:  # one by one: in a single call, overlapping outlines would punch holes into each other
        cv2.drawContours(mask, [polygon.astype(np.int32)], -1, 1, cv2.FILLED)
    return mask
