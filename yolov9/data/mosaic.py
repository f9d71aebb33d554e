"""Tiles: where each source picture lies on the canvas, and how it gets from the file straight onto the output.

The published recipe builds a canvas of twice the picture size from four scaled pictures and then warps it. Here the
canvas exists on paper only: scaling, placing and warping are one matrix a picture, so each picture is read at the scale
that is left in the end, resampled once, and not read at all when it ends up outside.

Everything is counted from the edge of a picture: column 0 covers 0 to 1, its centre is at 0.5, boxes of the whole
picture go from 0 to its width. OpenCV counts pixel centres in whole numbers; the difference is made up for in one place
(`_from_output`). The published recipe mixes the two, so that its pixels lie up to half a pixel beside their boxes when
the scale is not 1.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from yolov9.data.augment import Picture
from yolov9.data.geometry import Floats, is_affine, is_axis_aligned
from yolov9.data.letterbox import BORDER_GREY, LetterboxPlan, loaded_hw

MARGIN_PX = 2
"""Source pixels kept around the visible part, for the interpolation at its edge."""

Rectangle = tuple[int, int, int, int]
"""x1, y1, x2, y2 in pixels; the second pair is exclusive."""


class Drawable(NamedTuple):
    """Pixels of a source picture at a scale that the reader chose."""

    pixels: Picture
    """BGR."""
    pitch_xy: tuple[float, float]
    """Width and height of one of these pixels, in pixels of the full picture."""


ReadPicture = Callable[[int, float], Drawable]
"""(number of the picture, scale that it is drawn at) -> pixels that are fine enough for that scale."""


class Tile(NamedTuple):
    """One source picture on the canvas."""

    picture: int
    """Number in the index."""
    source_wh: tuple[int, int]
    """Size of the upright picture in pixels."""
    scaled_wh: tuple[float, float]
    """Size that the whole picture has on the canvas."""
    offset_xy: tuple[float, float]
    """Where its top left corner lies on the canvas; may be negative."""
    region: Rectangle
    """Part of the canvas that it covers."""

    def matrix(self) -> Floats:
        """Returns the matrix (3, 3) from source to canvas."""
        scale_x, scale_y = self.scaled_wh[0] / self.source_wh[0], self.scaled_wh[1] / self.source_wh[1]
        return np.array(((scale_x, 0.0, self.offset_xy[0]), (0.0, scale_y, self.offset_xy[1]), (0.0, 0.0, 1.0)))


def mosaic_tiles(
    pictures: Sequence[int], sources_wh: Sequence[tuple[int, int]], centre_xy: tuple[int, int], imgsz: int
) -> list[Tile]:
    """Places four pictures around a point of a canvas of 2 x imgsz in each direction.

    Args:
        pictures: four numbers: top left, top right, bottom left, bottom right.
        sources_wh: their sizes.
        centre_xy: the point where their corners meet.
        imgsz: length of the longer side of each picture on the canvas.
    """
    tiles = []
    side = 2 * imgsz
    for place, (picture, source_wh) in enumerate(zip(pictures, sources_wh, strict=True)):
        height, width = loaded_hw((source_wh[1], source_wh[0]), imgsz)
        left = centre_xy[0] - (width if place % 2 == 0 else 0)
        top = centre_xy[1] - (height if place < 2 else 0)
        region = (max(left, 0), max(top, 0), min(left + width, side), min(top + height, side))
        tiles.append(Tile(picture, source_wh, (width, height), (left, top), region))
    return tiles


def letterbox_tile(picture: int, source_wh: tuple[int, int], plan: LetterboxPlan) -> Tile:
    """Places one picture as the letterbox says on a canvas of the letterbox's size."""
    height, width = plan.content_hw
    region = (plan.left, plan.top, plan.left + width, plan.top + height)
    return Tile(picture, source_wh, (width, height), (plan.left, plan.top), region)


def mirror_matrix(width: int) -> Floats:
    """Returns the matrix that mirrors a picture of that width left-right."""
    return np.array(((-1.0, 0.0, width), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)))


def turn_over_matrix(height: int) -> Floats:
    """Returns the matrix that turns a picture of that height upside down."""
    return np.array(((1.0, 0.0, 0.0), (0.0, -1.0, height), (0.0, 0.0, 1.0)))


def compose(tiles: Sequence[Tile], matrix: Floats, read: ReadPicture, out: Picture) -> None:
    """Draws tiles through the matrix onto `out`.

    Args:
        tiles: they must not overlap on the canvas.
        matrix: (3, 3) from canvas to output.
        read: called once for each tile that is visible.
        out: BGR, overwritten; `BORDER_GREY` where no tile is.
    """
    out.fill(BORDER_GREY)
    for tile in tiles:
        if is_axis_aligned(matrix):
            _draw_upright(tile, matrix, read, out)
        else:
            _draw_turned(tile, matrix, read, out)


def _draw_upright(tile: Tile, matrix: Floats, read: ReadPicture, out: Picture) -> None:
    x1, y1, x2, y2 = _upright_target(tile.region, matrix, (out.shape[0], out.shape[1]))
    if x1 >= x2 or y1 >= y2:
        return
    total = matrix @ tile.matrix()
    source, pitch_xy = read(tile.picture, max(abs(total[0, 0]), abs(total[1, 1])))
    back = _from_output(total, pitch_xy, (x1, y1))
    corners = back[:2, :2] @ ((0, x2 - x1 - 1), (0, y2 - y1 - 1)) + back[:2, 2:]
    part, origin = _needed_part(source, corners)
    back[:2, 2] -= origin
    cv2.warpAffine(part, back[:2], (x2 - x1, y2 - y1), dst=out[y1:y2, x1:x2], flags=_FLAGS, borderValue=_GREY)


def _draw_turned(tile: Tile, matrix: Floats, read: ReadPicture, out: Picture) -> None:
    """Rotation, shear or perspective: each output pixel is asked which canvas pixel it shows."""
    mask = _turned_target(tile.region, matrix, (out.shape[0], out.shape[1]))
    if not mask.any():
        return
    x1, y1, width, height = cv2.boundingRect(mask)
    total = matrix @ tile.matrix()
    source, pitch_xy = read(tile.picture, _largest_scale(total))
    source = _replicated(source)
    back = _shifted((1.0, 1.0)) @ _from_output(total, pitch_xy, (x1, y1))
    if is_affine(total):
        drawn = cv2.warpAffine(source, back[:2] / back[2, 2], (width, height), flags=_FLAGS, borderValue=_GREY)
    else:
        drawn = cv2.warpPerspective(source, back, (width, height), flags=_FLAGS, borderValue=_GREY)
    place = slice(y1, y1 + height), slice(x1, x1 + width)
    cv2.copyTo(drawn, mask[place], out[place])


_FLAGS = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
_GREY = (BORDER_GREY, BORDER_GREY, BORDER_GREY)


def _upright_target(region: Rectangle, matrix: Floats, size_hw: tuple[int, int]) -> Rectangle:
    """Output pixels whose centre lies in the region; neighbours that share an edge share no pixel and leave no gap."""
    height, width = size_hw
    x = np.sort(np.array((region[0], region[2])) * matrix[0, 0] + matrix[0, 2])
    y = np.sort(np.array((region[1], region[3])) * matrix[1, 1] + matrix[1, 2])
    x1, x2 = np.clip(np.ceil(x - 0.5), 0, width).astype(int).tolist()
    y1, y2 = np.clip(np.ceil(y - 0.5), 0, height).astype(int).tolist()
    return x1, y1, x2, y2


def _turned_target(region: Rectangle, matrix: Floats, size_hw: tuple[int, int]) -> NDArray[np.uint8]:
    """The same as a mask (H, W), for any matrix."""
    height, width = size_hw
    back = np.linalg.inv(matrix)
    columns, rows = np.arange(width) + 0.5, np.arange(height)[:, None] + 0.5
    x, y = (back[k, 0] * columns + (back[k, 1] * rows + back[k, 2]) for k in (0, 1))
    if not is_affine(matrix):
        depth = back[2, 0] * columns + (back[2, 1] * rows + back[2, 2])
        x, y = x / depth, y / depth
    inside = (x >= region[0]) & (x < region[2]) & (y >= region[1]) & (y < region[3])
    return np.asarray(inside.view(np.uint8))


def _largest_scale(matrix: Floats) -> float:
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


def _needed_part(source: Picture, corners: Floats) -> tuple[Picture, tuple[int, int]]:
    """Cuts out what interpolation can reach, repeating edge pixels where the picture itself ends there.

    Returns:
        The part, and the pixel number in `source` of its first column and row.
    """
    height, width = source.shape[:2]
    x1, y1 = (np.floor(corners.min(axis=1)).astype(int) - MARGIN_PX).tolist()
    x2, y2 = (np.ceil(corners.max(axis=1)).astype(int) + MARGIN_PX + 1).tolist()
    inner = source[max(y1, 0) : max(y2, 1), max(x1, 0) : max(x2, 1)]
    if x1 >= 0 and y1 >= 0 and x2 <= width and y2 <= height:
        return inner, (x1, y1)
    # An edge pixel more than the half pixel that interpolation can look beyond the picture.
    return _replicated(inner), (max(x1, 0) - 1, max(y1, 0) - 1)


def _replicated(source: Picture) -> Picture:
    return np.asarray(cv2.copyMakeBorder(source, 1, 1, 1, 1, cv2.BORDER_REPLICATE), dtype=np.uint8)
