"""Draws a tile that is only scaled, mirrored and shifted."""

import math
from typing import NamedTuple

from yolov9.data.augment import Picture
from yolov9.data.brush import Brush, Line
from yolov9.data.geometry import Floats
from yolov9.data.tiles import ReadPicture, Rectangle, Tile


class Axis(NamedTuple):
    """One direction of a drawing."""

    source: tuple[int, int]
    """First and last (exclusive) source pixel that is needed."""
    line: Line
    """Which of them become the pixels that are shown."""


def draw_upright(
    tile: Tile, matrix: Floats, read: ReadPicture, out: Picture, brush: Brush, factors: Floats | None
) -> Rectangle | None:
    """Draws what the matrix shows of a tile.

    Args:
        tile: what to draw.
        matrix: (3, 3) from canvas to output, axis-aligned.
        read: called if the tile is visible.
        out: (H, W, 3); changed where the tile is.
        brush, factors: see `compose`.

    Returns:
        Where the tile is; None when it is not visible.
    """
    scales, shifts = (matrix[0, 0].item(), matrix[1, 1].item()), (matrix[0, 2].item(), matrix[1, 2].item())
    (left, top, right, bottom), (height, width, _) = tile.region, out.shape
    x1, x2 = shown_pixels((left, right), scales[0], shifts[0], width)
    y1, y2 = shown_pixels((top, bottom), scales[1], shifts[1], height)
    if x1 >= x2 or y1 >= y2:
        return None
    # Output pixels per pixel of the full picture, and where its first edge lies in the output.
    total_x, total_y = (scales[axis] * tile.scaled_wh[axis] / tile.source_wh[axis] for axis in (0, 1))
    start_x, start_y = (scales[axis] * tile.offset_xy[axis] + shifts[axis] for axis in (0, 1))
    source, (pitch_x, pitch_y) = read(tile.picture, max(abs(total_x), abs(total_y)))
    columns, x = plan_axis(total_x * pitch_x, start_x, (x1, x2), source.shape[1])
    rows, y = plan_axis(total_y * pitch_y, start_y, (y1, y2), source.shape[0])
    part, place = source[slice(*rows), slice(*columns)], out[y1:y2, x1:x2]
    # What is done pixel by pixel is done where there are fewer of them.
    brush.resample(part, x, y, place, factors, colours_first=part.size < place.size)
    return x1, y1, x2, y2


def shown_pixels(region: tuple[int, int], scale: float, shift: float, size: int) -> tuple[int, int]:
    """Returns the output pixels whose centre lies in the region; neighbours share no pixel and leave no gap.

    Args:
        region: edges on the canvas.
        scale, shift: from canvas to output.
        size: of the output in pixels.
    """
    low, high = sorted((region[0] * scale + shift, region[1] * scale + shift))
    first, last = math.ceil(low - 0.5), math.ceil(high - 0.5)
    return min(max(first, 0), size), min(max(last, 0), size)


def plan_axis(scale: float, start: float, shown: tuple[int, int], size: int) -> Axis:
    """Says where the pixels that are shown come from.

    Args:
        scale: output pixels per source pixel; negative when mirrored.
        start: where the source's first edge lies in the output.
        shown: output pixels that are wanted, at least one; they lie within the source but for half a pixel.
        size: source pixels.
    """
    step = 1.0 / scale
    first, last = ((pixel + 0.5 - start) * step - 0.5 for pixel in (shown[0], shown[1] - 1))
    low = min(max(math.floor(min(first, last)), 0), size - 1)
    high = min(max(math.floor(max(first, last)) + 2, low + 1), size)
    return Axis((low, high), Line(first - low, step))
