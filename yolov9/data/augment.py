"""Colour, blending and copy-paste. Pictures are HWC uint8; random numbers come in as arguments or from a generator."""

import cv2
import numpy as np
from numpy.typing import NDArray

from yolov9.data.geometry import Floats

Picture = NDArray[np.uint8]

HUE_LEVELS = 180
"""OpenCV keeps the hue of an 8-bit picture as 0 … 179."""
MIXUP_BETA = 32.0
"""Both parameters of the Beta distribution of the blending ratio; published recipe."""
COPY_PASTE_MAX_OVERLAP = 0.30
"""A mirrored object may cover less than this share of every object that is there already; published recipe."""
TINY = 1e-16
"""Keeps divisions by empty boxes finite."""


def hsv_factors(rng: np.random.Generator, gains: tuple[float, float, float]) -> Floats:
    """Draws the factors (3,) of hue, saturation and value: 1 + gain x uniform(-1, 1)."""
    return np.asarray(1.0 + rng.uniform(-1.0, 1.0, 3) * gains)


def hsv_tables(factors: Floats) -> NDArray[np.uint8]:
    """Returns look-up tables (3, 256) that multiply hue (in a circle), saturation and value (limited)."""
    products = factors[:, None] * np.arange(256.0)
    products[0] %= HUE_LEVELS
    return np.minimum(products, 255.0).astype(np.uint8)


def bgr_to_rgb_with_hsv(picture: Picture, factors: Floats | None, out: Picture) -> None:
    """Changes the colours of a BGR picture and writes it as RGB.

    Args:
        picture: BGR; its content is lost.
        factors: as from `hsv_factors`, or None for no change.
        out: RGB picture of the same size.
    """
    if factors is None:
        cv2.cvtColor(picture, cv2.COLOR_BGR2RGB, dst=out)
        return
    cv2.cvtColor(picture, cv2.COLOR_BGR2HSV, dst=picture)
    # Three planes and three tables take less time than one table of three channels.
    planes = cv2.split(picture)
    for plane, table in zip(planes, hsv_tables(factors), strict=True):
        cv2.LUT(plane, table, dst=plane)
    cv2.merge(planes, dst=picture)
    cv2.cvtColor(picture, cv2.COLOR_HSV2RGB, dst=out)


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
    mirrored = mirror_boxes(boxes[numbers], width)
    low = np.maximum(mirrored[:, None, :2], boxes[None, :, :2])
    high = np.minimum(mirrored[:, None, 2:], boxes[None, :, 2:])
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    covered = (high - low).clip(0).prod(axis=2) / (area + TINY)
    return np.asarray(numbers[(covered < COPY_PASTE_MAX_OVERLAP).all(axis=1)], dtype=np.intp)


def copy_paste_choice(rng: np.random.Generator, candidates: NDArray[np.intp], share: float) -> NDArray[np.intp]:
    """Picks the given share of the candidates (rounded, halves to even), without repetition."""
    return np.asarray(rng.choice(candidates, round(share * len(candidates)), replace=False), dtype=np.intp)


def outline_mask(polygons: list[Floats], size_hw: tuple[int, int]) -> Picture:
    """Returns a mask (H, W) that is 1 inside the polygons (pixels, cut off to whole numbers) and 0 elsewhere."""
    mask = np.zeros(size_hw, np.uint8)
    for polygon in polygons:  # one by one: in a single call, overlapping outlines would punch holes into each other
        cv2.drawContours(mask, [polygon.astype(np.int32)], -1, 1, cv2.FILLED)
    return mask
