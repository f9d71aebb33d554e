"""Random perspective: its matrix, and what it does to boxes and polygons.

All matrices are 3x3, float64, and act on columns (x, y, 1), in pixels counted from the edge of the picture.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from yolov9.data.box_convert import clip_to_picture

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

POLYGON_POINTS = 1000
"""Points to which an outline is resampled before it is warped; part of the published recipe's result."""
MIN_SIDE_PX = 2.0
"""Warped boxes must be larger than this in both directions (parity/data/box_candidates.json)."""
MAX_ASPECT = 100.0
"""Warped boxes must have a smaller ratio of long to short side than this."""
MIN_AREA_BOX = 0.1
"""Share of the scaled area that must stay visible for a plain box."""
MIN_AREA_POLYGON = 0.01
"""The same for an object with an outline, whose warped box is tight."""
_TWICE = (0, 1, 0, 1)
"""x, y of both corners of a box."""
TINY = 1e-16
"""Keeps divisions by empty boxes finite."""


class PerspectiveLimits(NamedTuple):
    """Ranges of the random perspective; names and units as in `Recipe`."""

    degrees: float
    translate: float
    scale: float
    shear: float
    perspective: float


class PerspectiveDraws(NamedTuple):
    """The eight random numbers of one perspective, in the order in which they are drawn."""

    perspective_x: float
    perspective_y: float
    angle_deg: float
    scale: float
    shear_x_deg: float
    shear_y_deg: float
    translate_x: float
    translate_y: float


def draw_perspective(rng: np.random.Generator, limits: PerspectiveLimits) -> PerspectiveDraws:
    """Draws a perspective uniformly within the limits; translations are shares of the output size around 0.5."""
    low, width = _ranges(limits)
    return PerspectiveDraws(*(low + width * rng.random(len(low))).tolist())


@functools.cache
def _ranges(limits: PerspectiveLimits) -> tuple[Floats, Floats]:
    """Returns the least value and the width (8,) of the range of each draw."""
    p, a, s, t = limits.perspective, limits.degrees, limits.shear, limits.translate
    low = np.array((-p, -p, -a, 1 - limits.scale, -s, -s, 0.5 - t, 0.5 - t))
    high = np.array((p, p, a, 1 + limits.scale, s, s, 0.5 + t, 0.5 + t))
    return low, high - low


def perspective_matrix(draws: PerspectiveDraws, canvas_hw: tuple[int, int], out_hw: tuple[int, int]) -> Floats:
    """Returns the matrix from canvas to output.

    The canvas centre goes to the origin; then perspective, rotation with scale, shear; then the origin goes to the
    drawn place of the output.

    Args:
        draws: the eight random numbers.
        canvas_hw: height and width of the picture before the step.
        out_hw: height and width after it.
    """
    angle = math.radians(draws.angle_deg)
    cos, sin = draws.scale * math.cos(angle), draws.scale * math.sin(angle)
    shear_x, shear_y = math.tan(math.radians(draws.shear_x_deg)), math.tan(math.radians(draws.shear_y_deg))
    centre_x, centre_y = canvas_hw[1] / 2, canvas_hw[0] / 2
    # Rotation with scale, then shear; in plain numbers, as five products of arrays take ten times as long.
    xx, xy, yx, yy = cos - shear_x * sin, sin + shear_x * cos, shear_y * cos - sin, shear_y * sin + cos
    # Perspective comes first and the shift last, so depth joins the upper rows by the shift alone.
    shift_x, shift_y = draws.translate_x * out_hw[1], draws.translate_y * out_hw[0]
    depth_x, depth_y = draws.perspective_x, draws.perspective_y
    depth = 1.0 - depth_x * centre_x - depth_y * centre_y
    return np.array(
        (
            (xx + shift_x * depth_x, xy + shift_x * depth_y, shift_x * depth - xx * centre_x - xy * centre_y),
            (yx + shift_y * depth_x, yy + shift_y * depth_y, shift_y * depth - yx * centre_x - yy * centre_y),
            (depth_x, depth_y, depth),
        )
    )


def on_whole_pixel(matrix: Floats, point_xy: tuple[float, float]) -> Floats:
    """Shifts the output by less than a pixel so that a point of the canvas comes to lie on the edge of a pixel.

    Borders of pictures that fall between pixels would have to be blended; the shift is far below what is drawn at
    random. Turned pictures have no such borders, and their matrix is returned as it is.
    """
    if not is_axis_aligned(matrix):
        return matrix
    shifted = matrix.copy()
    rows = matrix.tolist()
    for axis in (0, 1):
        place = rows[axis][axis] * point_xy[axis] + rows[axis][2]
        shifted[axis, 2] += round(place) - place
    return shifted


def is_axis_aligned(matrix: Floats) -> bool:
    """True when the matrix only scales (or mirrors) and shifts, so that rectangles stay upright rectangles."""
    (_, skew_x, _), (skew_y, _, _), (depth_x, depth_y, _) = matrix.tolist()
    return not (skew_x or skew_y or depth_x or depth_y)


def is_affine(matrix: Floats) -> bool:
    """True when the matrix has no perspective part."""
    return not (matrix[2, 0] or matrix[2, 1])


def warp_points(points: Floats, matrix: Floats) -> Floats:
    """Maps points (n, 2) through the matrix, dividing by the third coordinate where there is perspective."""
    moved = points @ matrix[:2, :2].T + matrix[:2, 2]
    if not is_affine(matrix):
        moved /= points @ matrix[2, :2, None] + matrix[2, 2]
    return np.asarray(moved, dtype=np.float64)


def warp_boxes(boxes: Floats, matrix: Floats, out_hw: tuple[int, int]) -> Floats:
    """Warps the corners of boxes (n, 4: x1, y1, x2, y2), encloses them again and clips to the output."""
    if is_axis_aligned(matrix):  # corners stay together, and two say it all
        moved = boxes * matrix[_TWICE, _TWICE] + matrix[_TWICE, 2]
        first, second = moved[:, :2], moved[:, 2:]
        enclosing = np.concatenate((np.minimum(first, second), np.maximum(first, second)), axis=1)
    else:
        corners = boxes[:, [0, 1, 2, 3, 0, 3, 2, 1]].reshape(-1, 2)
        moved = warp_points(corners, matrix).reshape(-1, 4, 2)
        enclosing = np.concatenate((moved.min(axis=1), moved.max(axis=1)), axis=1)
    return clip_to_picture(enclosing, out_hw[1], out_hw[0]).astype(np.float64)


def resample_outline(polygon: Floats) -> Floats:
    """Returns `POLYGON_POINTS` points (k, 2) along the closed outline, evenly spaced in vertex number."""
    closed = np.concatenate((polygon, polygon[:1]))
    place = np.linspace(0, len(polygon), POLYGON_POINTS)
    start = np.minimum(place.astype(np.intp), len(polygon) - 1)
    return np.asarray(closed[start] + (closed[start + 1] - closed[start]) * (place - start)[:, None])


def outline_box(polygon: Floats, matrix: Floats, out_hw: tuple[int, int]) -> Floats:
    """Returns the box (4,) of the part of a warped outline that lies inside the output; zeros when none does."""
    points = warp_points(resample_outline(polygon), matrix)
    inside = ((points >= 0) & (points <= (out_hw[1], out_hw[0]))).all(axis=1)
    if not inside.any():
        return np.zeros(4)
    visible = points[inside]
    return np.concatenate((visible.min(axis=0), visible.max(axis=0)))


def box_candidates(before: Floats, after: Floats, min_area: float | Floats = MIN_AREA_BOX) -> Bools:
    """Tells which warped boxes are worth keeping.

    Args:
        before: boxes (n, 4) before the warp, in the scale of the output.
        after: the same boxes warped and clipped.
        min_area: smallest share of the area before, one number or one a box.
    """
    width_before, height_before = before[:, 2] - before[:, 0], before[:, 3] - before[:, 1]
    width, height = after[:, 2] - after[:, 0], after[:, 3] - after[:, 1]
    aspect = np.maximum(width / (height + TINY), height / (width + TINY))
    share = width * height / (width_before * height_before + TINY)
    kept = (width > MIN_SIDE_PX) & (height > MIN_SIDE_PX) & (share > min_area) & (aspect < MAX_ASPECT)
    return np.asarray(kept, dtype=np.bool_)
