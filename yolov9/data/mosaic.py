"""Draws tiles onto a sample."""

from collections.abc import Sequence

import numpy as np

from yolov9.data.augment import Picture
from yolov9.data.draw_turned import draw_turned
from yolov9.data.draw_upright import draw_upright
from yolov9.data.geometry import Floats, is_axis_aligned
from yolov9.data.letterbox import BORDER_GREY
from yolov9.data.tiles import ReadPicture, Recolour, Tile


def compose(
    tiles: Sequence[Tile], matrix: Floats, read: ReadPicture, out: Picture, recolour: Recolour | None = None
) -> None:
    """Draws tiles through the matrix onto `out`.

    Args:
        tiles: they must not overlap on the canvas.
        matrix: (3, 3) from canvas to output.
        read: called once for each tile that is visible.
        out: overwritten; `BORDER_GREY` where no tile is.
        recolour: changes the colours of everything, borders too; None leaves BGR as it was read.
    """
    border = np.full((1, 1, 3), BORDER_GREY, np.uint8)
    if recolour is not None:
        recolour(border, border)
    out.fill(border[0, 0, 0])
    draw = draw_upright if is_axis_aligned(matrix) else draw_turned
    for tile in tiles:
        draw(tile, matrix, read, out, recolour)
