"""Draws a tile that is only scaled, mirrored and shifted, with OpenCV's resize, which takes a third of a warp's time.

Resize maps whole source pixels to whole output pixels. So the part that is resized is chosen a little larger than what
is visible, with borders that happen to fall on whole output pixels: among some dozens of candidates there nearly always
is one within 1/16 of a pixel.
"""

import math
from typing import NamedTuple

import cv2
import numpy as np

from yolov9.data.augment import Picture
from yolov9.data.draw_turned import warp
from yolov9.data.geometry import Floats
from yolov9.data.tiles import Drawable, ReadPicture, Recolour, Tile

CANDIDATES = 48
"""Source pixels that a border may lie further out than needed; more of them leave fewer tiles to the slower way."""
GOOD_ENOUGH_PX = 1 / 16
"""Distance of a border from a whole output pixel at which the search ends."""
TOLERABLE_PX = 1 / 8
"""Distance beyond which the slower, exact way is taken: at scales close to 1, 1/2 and the like no border may fit."""


class Axis(NamedTuple):
    """One direction of a drawing: which source pixels become which output pixels."""

    source: tuple[int, int]
    """First and last (exclusive) source pixel; may lie outside the picture, whose edge is then repeated."""
    target: tuple[int, int]
    """Output pixels that they become; at least those that are shown."""
    shown: tuple[int, int]
    """Output pixels that are wanted."""
    mirrored: bool
    """The three are counted from the other end of the output, with negative numbers."""
    error_px: float
    """How far the borders really are from whole output pixels."""


def draw_upright(tile: Tile, matrix: Floats, read: ReadPicture, out: Picture, recolour: Recolour | None = None) -> None:
    """Draws what the matrix shows of a tile.

    Args:
        tile: what to draw.
        matrix: (3, 3) from canvas to output, axis-aligned.
        read: called if the tile is visible.
        out: (H, W, 3); changed where the tile is.
        recolour: see `compose`.
    """
    scales, shifts = (matrix[0, 0].item(), matrix[1, 1].item()), (matrix[0, 2].item(), matrix[1, 2].item())
    spans = []
    for axis in (0, 1):
        region = tile.region[axis], tile.region[axis + 2]
        spans.append(shown_pixels(region, scales[axis], shifts[axis], out.shape[1 - axis]))
        if spans[axis][0] >= spans[axis][1]:
            return
    # Output pixels per pixel of the full picture, and where its first edge lies in the output.
    totals = [scales[axis] * tile.scaled_wh[axis] / tile.source_wh[axis] for axis in (0, 1)]
    starts = [scales[axis] * tile.offset_xy[axis] + shifts[axis] for axis in (0, 1)]
    source, pitch_xy = read(tile.picture, max(abs(totals[0]), abs(totals[1])))
    x, y = (plan_axis(totals[a] * pitch_xy[a], starts[a], spans[a], source.shape[1 - a]) for a in (0, 1))
    if max(x.error_px, y.error_px) > TOLERABLE_PX:
        (x1, x2), (y1, y2) = spans
        drawn = warp(Drawable(source, pitch_xy), matrix @ tile.matrix(), (x1, y1, x2, y2))
        _put(drawn, out[y1:y2, x1:x2], recolour)
    else:
        _draw(source, x, y, out, recolour)


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
    """Chooses the source pixels to resize.

    Args:
        scale: output pixels per source pixel; negative when mirrored.
        start: where the source's first edge lies in the output.
        shown: output pixels that are wanted; they lie within the source but for half a pixel.
        size: source pixels.
    """
    mirrored = scale < 0
    if mirrored:
        scale, start, shown = -scale, -start, (-shown[1], -shown[0])
    low, high = (shown[0] - start) / scale, (shown[1] - start) / scale
    first = 0 if low <= 1 else math.floor(low) - 1
    last = size if high >= size - 1 else math.ceil(high) + 1
    first, target_first, first_error = _best_border(scale, start, first, -1, shown[0])
    last, target_last, last_error = _best_border(scale, start, last, 1, shown[1])
    return Axis((first, last), (target_first, target_last), shown, mirrored, max(first_error, last_error))


def _best_border(scale: float, start: float, nearest: int, step: int, shown: int) -> tuple[int, int, float]:
    """Returns the border, at or beyond the nearest possible one, that falls best on a whole output pixel.

    Returns:
        Source pixel, output pixel, and how far apart they really are, in output pixels.
    """
    best, best_error = (nearest, shown), math.inf
    for border in range(nearest, nearest + step * CANDIDATES, step):
        place = scale * border + start
        target = round(place)
        error = abs(place - target)
        if error < best_error and (shown - target) * step <= 0:
            best, best_error = (border, target), error
            if error <= GOOD_ENOUGH_PX:
                break
    return *best, best_error


def _draw(source: Picture, x: Axis, y: Axis, out: Picture, recolour: Recolour | None) -> None:
    part = _part(source, x.source, y.source)
    size = x.target[1] - x.target[0], y.target[1] - y.target[0]
    place = out[_shown(y), _shown(x)]
    # What is done pixel by pixel is done where there are fewer of them.
    if part.shape[0] * part.shape[1] < size[0] * size[1]:
        part = _mirrored(part, x.mirrored, y.mirrored)
        if recolour is not None:
            changed = np.empty(part.shape, np.uint8)
            recolour(part, changed)
            part = changed
        if place.shape[1::-1] == size:
            cv2.resize(part, size, dst=place, interpolation=cv2.INTER_LINEAR)
        else:
            place[...] = cv2.resize(part, size, interpolation=cv2.INTER_LINEAR)[_within(y), _within(x)]
        return
    drawn = np.asarray(cv2.resize(part, size, interpolation=cv2.INTER_LINEAR), np.uint8)
    _put(_mirrored(drawn, x.mirrored, y.mirrored)[_within(y), _within(x)], place, recolour)


def _put(drawn: Picture, place: Picture, recolour: Recolour | None) -> None:
    if recolour is None:
        place[...] = drawn
    else:
        recolour(drawn, place)


def _mirrored(picture: Picture, left_right: bool, upside_down: bool) -> Picture:
    if not (left_right or upside_down):
        return picture
    return np.asarray(cv2.flip(picture, _FLIP_CODES[left_right, upside_down]), np.uint8)


_FLIP_CODES = {(True, False): 1, (False, True): 0, (True, True): -1}
"""OpenCV's numbers for left-right, upside down and both."""


def _shown(axis: Axis) -> slice:
    first, last = axis.shown
    return slice(-last, -first) if axis.mirrored else slice(first, last)


def _within(axis: Axis) -> slice:
    """Where the output pixels that are wanted lie among those that are drawn, once these are mirrored."""
    if axis.mirrored:
        return slice(axis.target[1] - axis.shown[1], axis.target[1] - axis.shown[0])
    return slice(axis.shown[0] - axis.target[0], axis.shown[1] - axis.target[0])


def _part(source: Picture, columns: tuple[int, int], rows: tuple[int, int]) -> Picture:
    """Cuts out a part; where it reaches beyond the picture, the edge is repeated."""
    height, width = source.shape[:2]
    left, right = max(-columns[0], 0), max(columns[1] - width, 0)
    top, bottom = max(-rows[0], 0), max(rows[1] - height, 0)
    inner = source[max(rows[0], 0) : rows[1], max(columns[0], 0) : columns[1]]
    if not (left or right or top or bottom):
        return inner
    return np.asarray(cv2.copyMakeBorder(inner, top, bottom, left, right, cv2.BORDER_REPLICATE), dtype=np.uint8)
