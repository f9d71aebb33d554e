"""Tiles: where each source picture lies on the canvas of a sample.

The published recipe builds a canvas of twice the picture size from four scaled pictures and then warps it. Here the
canvas exists on paper only: scaling, placing and warping are one matrix a picture, so each picture is read at the scale
that is left in the end, resampled once, and not read at all when it ends up outside.

Everything is counted from the edge of a picture: column 0 covers 0 to 1, its centre is at 0.5, boxes of the whole
picture go from 0 to its width. OpenCV counts pixel centres in whole numbers; `draw_turned` makes up for the difference.
The published recipe mixes the two, so that its pixels lie up to half a pixel beside their boxes unless the scale is 1.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from yolov9.data.augment import Picture
from yolov9.data.geometry import Floats
from yolov9.data.letterbox import LetterboxPlan, loaded_hw

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
    return flip_matrix((0, width), upside_down=False, left_right=True)


def flip_matrix(size_hw: tuple[int, int], *, upside_down: bool, left_right: bool) -> Floats:
    """Returns the matrix that mirrors a picture of that size as asked for."""
    x = (-1.0, 0.0, size_hw[1]) if left_right else (1.0, 0.0, 0.0)
    y = (0.0, -1.0, size_hw[0]) if upside_down else (0.0, 1.0, 0.0)
    return np.array((x, y, (0.0, 0.0, 1.0)))
