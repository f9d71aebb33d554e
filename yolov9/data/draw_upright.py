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
    (scale_x, _, shift_x), (_, scale_y, shift_y), _ = matrix.tolist()
    (left, top, right, bottom), (height, width, _) = tile.region, out.shape
    x1, x2 = shown_pixels((left, right), scale_x, shift_x, width)
    y1, y2 = shown_pixels((top, bottom), scale_y, shift_y, height)
    if x1 >= x2 or y1 >= y2:
        return None
    # Output pixels per pixel of the full picture, and where its first edge lies in the output.
    total_x, total_y = scale_x * tile.scaled_wh[0] / tile.source_wh[0], scale_y * tile.scaled_wh[1] / tile.source_wh[1]
    start_x, start_y = scale_x * tile.offset_xy[0] + shift_x, scale_y * tile.offset_xy[1] + shift_y
    source, (pitch_x, pitch_y) = read(tile.picture, max(abs(total_x), abs(total_y)))
    (from_x, to_x), x = plan_axis(total_x * pitch_x, start_x, (x1, x2), source.shape[1])
    (from_y, to_y), y = plan_axis(total_y * pitch_y, start_y, (y1, y2), source.shape[0])
    part, place = source[from_y:to_y, from_x:to_x], out[y1:y2, x1:x2]
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
    first, last = math.ceil(region[0] * scale + shift - 0.5), math.ceil(region[1] * scale + shift - 0.5)
    if scale < 0:
        first, last = last, first
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
    first, last = (shown[0] + 0.5 - start) * step - 0.5, (shown[1] - 0.5 - start) * step - 0.5
    least, most = (first, last) if step > 0 else (last, first)
    low = min(max(math.floor(least), 0), size - 1)
    high = min(max(math.floor(most) + 2, low + 1), size)
    return Axis((low, high), Line(first - low, step))
