"""Draws tiles onto a sample."""

from collections.abc import Sequence

from yolov9.data.augment import Picture
from yolov9.data.draw_turned import draw_turned
from yolov9.data.draw_upright import draw_upright
from yolov9.data.geometry import Floats, is_axis_aligned
from yolov9.data.letterbox import BORDER_GREY
from yolov9.data.tiles import ReadPicture, Tile


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
            draw_upright(tile, matrix, read, out)
        else:
            draw_turned(tile, matrix, read, out)
