"""Draws a tile through any matrix: rotation, shear, perspective."""

import cv2
import numpy as np
from numpy.typing import NDArray

from yolov9.data.augment import Picture
from yolov9.data.brush import Brush
from yolov9.data.geometry import Floats, is_affine
from yolov9.data.letterbox import BORDER_GREY
from yolov9.data.tiles import Drawable, ReadPicture, Rectangle, Tile

_FLAGS = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
_GREY = (BORDER_GREY, BORDER_GREY, BORDER_GREY)


def draw_turned(
    tile: Tile, matrix: Floats, read: ReadPicture, out: Picture, brush: Brush, factors: Floats | None
) -> None:
    """Draws what the matrix shows of a tile.

    Args:
        tile: what to draw.
        matrix: (3, 3) from canvas to output.
        read: called if the tile is visible.
        out: (H, W, 3); changed where the tile is.
        brush, factors: see `compose`.
    """
    mask = _turned_target(tile.region, matrix, (out.shape[0], out.shape[1]))
    if not mask.any():
        return
    x1, y1, width, height = cv2.boundingRect(mask)
    source = read(tile.picture, largest_scale(matrix @ tile.matrix()))
    drawn = warp(source, matrix @ tile.matrix(), (x1, y1, x1 + width, y1 + height))
    if factors is not None:
        brush.recolour(drawn, drawn, factors)
    place = slice(y1, y1 + height), slice(x1, x1 + width)
    cv2.copyTo(drawn, mask[place], out[place])


def warp(source: Drawable, total: Floats, shown: Rectangle) -> Picture:
    """Returns a part of the output with the source in it.

    Args:
        source: pixels.
        total: (3, 3) from the full picture to the output.
        shown: the part of the output.
    """
    replicated = np.asarray(cv2.copyMakeBorder(source.pixels, 1, 1, 1, 1, cv2.BORDER_REPLICATE))
    back = _shifted((1.0, 1.0)) @ _from_output(total, source.pitch_xy, shown[:2])
    size = shown[2] - shown[0], shown[3] - shown[1]
    if is_affine(total):
        drawn = cv2.warpAffine(replicated, back[:2] / back[2, 2], size, flags=_FLAGS, borderValue=_GREY)
    else:
        drawn = cv2.warpPerspective(replicated, back, size, flags=_FLAGS, borderValue=_GREY)
    return np.asarray(drawn, dtype=np.uint8)


def _turned_target(region: Rectangle, matrix: Floats, size_hw: tuple[int, int]) -> NDArray[np.uint8]:
    """Mask (H, W) of the output pixels whose centre lies in the region; neighbours share no pixel and leave no gap."""
    height, width = size_hw
    back = np.linalg.inv(matrix)
    columns, rows = np.arange(width) + 0.5, np.arange(height)[:, None] + 0.5
    x, y = (back[k, 0] * columns + (back[k, 1] * rows + back[k, 2]) for k in (0, 1))
    if not is_affine(matrix):
        depth = back[2, 0] * columns + (back[2, 1] * rows + back[2, 2])
        x, y = x / depth, y / depth
    inside = (x >= region[0]) & (x < region[2]) & (y >= region[1]) & (y < region[3])
    return np.asarray(inside.view(np.uint8))


def largest_scale(matrix: Floats) -> float:
    """Largest magnification along an axis; with perspective it varies, and full detail is asked for."""
    if not is_affine(matrix):
        return 1.0
    return float(np.hypot(matrix[0, :2], matrix[1, :2]).max())


def _from_output(total: Floats, pitch_xy: tuple[float, float], corner_xy: tuple[int, int]) -> Floats:
    """Matrix for OpenCV: from pixel numbers of the output, counted from a corner, to those of the pixels read."""
    shrink = np.diag((1 / pitch_xy[0], 1 / pitch_xy[1], 1.0))
    centre = corner_xy[0] + 0.5, corner_xy[1] + 0.5
    return np.asarray(_shifted((-0.5, -0.5)) @ shrink @ np.linalg.inv(total) @ _shifted(centre), dtype=np.float64)


def _shifted(by_xy: tuple[float, float]) -> Floats:
    shift = np.eye(3)
    shift[:2, 2] = by_xy
    return shift
