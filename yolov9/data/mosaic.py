"""Draws tiles onto a sample."""

from collections.abc import Sequence
from itertools import pairwise

from yolov9.data.augment import Picture, scaled_grey
from yolov9.data.brush import OPENCV, Brush
from yolov9.data.draw_turned import draw_turned
from yolov9.data.draw_upright import draw_upright
from yolov9.data.geometry import Floats, is_axis_aligned
from yolov9.data.letterbox import BORDER_GREY
from yolov9.data.tiles import ReadPicture, Rectangle, Tile


def compose(
    tiles: Sequence[Tile],
    matrix: Floats,
    read: ReadPicture,
    out: Picture,
    brush: Brush = OPENCV,
    factors: Floats | None = None,
) -> None:
    """Draws tiles through the matrix onto `out`.

    Args:
        tiles: they must not overlap on the canvas.
        matrix: (3, 3) from canvas to output.
        read: called once for each tile that is visible.
        out: overwritten; `BORDER_GREY` where no tile is.
        brush: does the drawing.
        factors: change of colours as from `hsv_factors`, of borders too, after which `out` is RGB; None leaves BGR.
    """
    grey = BORDER_GREY if factors is None else scaled_grey(BORDER_GREY, factors)
    if is_axis_aligned(matrix):
        drawn = [draw_upright(tile, matrix, read, out, brush, factors) for tile in tiles]
        fill_rest(out, [rectangle for rectangle in drawn if rectangle is not None], grey)
        return
    out.fill(grey)
    for tile in tiles:
        draw_turned(tile, matrix, read, out, brush, factors)


def fill_rest(out: Picture, rectangles: Sequence[Rectangle], value: int) -> None:
    """Fills what lies in none of the rectangles, which do not overlap."""
    height, width = out.shape[:2]
    for top, bottom in pairwise(sorted({0, height, *(edge for r in rectangles for edge in (r[1], r[3]))})):
        left = 0
        for x1, x2 in sorted((r[0], r[2]) for r in rectangles if r[1] <= top and bottom <= r[3]):
            if left < x1:
                out[top:bottom, left:x1] = value
            left = x2
        if left < width:
            out[top:bottom, left:] = value
