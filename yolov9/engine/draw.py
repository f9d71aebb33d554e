"""Draws boxes and labels on a picture. A label is rendered once by Pillow and then copied, so that text in any script
costs the same as a rectangle.
"""

from collections.abc import Sequence
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from yolov9.engine.fonts import FontSet, TextRun, machine_fonts, open_font

GOLDEN_RATIO_FRACTION = 0.61803398875
"""Step around the hue circle that keeps any number of neighbours apart (fractional part of the golden ratio)."""

TEXT_PADDING = 0.25
"""Space around the text of a label, as a part of the text size."""

TEXT_PX, TEXT_PX_PER_LINE_PX = 7, 3
"""Size of the text: 10 pixels in a small picture, 13 at 640 x 480, and in proportion above."""

Colour = tuple[int, int, int]


def class_colour(number: int) -> Colour:
    """Returns the BGR colour of a class: hues a golden-ratio step apart, in three levels of lightness."""
    hue = int(((number * GOLDEN_RATIO_FRACTION + 0.02) % 1.0) * 180)
    saturation, value = ((230, 235), (150, 255), (255, 170))[(number // 7) % 3]
    pixel = cv2.cvtColor(np.array([[[hue, saturation, value]]], np.uint8), cv2.COLOR_HSV2BGR)[0, 0]
    return int(pixel[0]), int(pixel[1]), int(pixel[2])


def text_colour(background: Colour) -> Colour:
    """Returns black or white, whichever is easier to read on a BGR background (luma of ITU-R BT.601)."""
    luma = 0.114 * background[0] + 0.587 * background[1] + 0.299 * background[2]
    return (0, 0, 0) if luma > 140 else (255, 255, 255)


def line_width(height: int, width: int) -> int:
    """Returns a line width in pixels that suits a picture of this size: 2 at 640 x 480."""
    return max(1, round((height + width) / 2 * 0.003))


def draw_boxes(
    image: NDArray[np.uint8],
    boxes: NDArray[np.float32],
    classes: NDArray[np.int64],
    labels: Sequence[str],
    *,
    line_px: int | None = None,
    fonts: FontSet | None = None,
) -> NDArray[np.uint8]:
    """Draws boxes with their labels into a picture, in place.

    Args:
        image: (H, W, 3) BGR, C-contiguous.
        boxes: (n, 4) x1, y1, x2, y2 in pixels; parts outside the picture are cut.
        classes: (n,) class numbers, for the colours.
        labels: n texts; an empty text draws no label. See `fonts.readable_names`.
        line_px: width of the lines in pixels; None fits it to the picture.
        fonts: fonts to use; None takes those of this machine.

    Returns:
        The same array.
    """
    height, width = image.shape[:2]
    fonts = fonts or machine_fonts()
    line = line_px or line_width(height, width)
    size = TEXT_PX + TEXT_PX_PER_LINE_PX * line_width(height, width)
    # The most certain objects come first in the list and are drawn last, on top of the others.
    drawn = list(zip(_corners(boxes, height, width), classes, labels, strict=True))[::-1]
    for (x1, y1, x2, y2), number, _ in drawn:
        cv2.rectangle(image, (x1, y1), (x2, y2), class_colour(int(number)), line, cv2.LINE_AA)
    for (x1, y1, _, _), number, label in drawn:
        if label:
            mask = _text_mask(tuple(fonts.runs(label)), size)
            _paste_label(image, mask, (x1 - line // 2, y1), class_colour(int(number)))
    return image


def _corners(boxes: NDArray[np.float32], height: int, width: int) -> list[tuple[int, int, int, int]]:
    """Whole pixels inside the picture; coordinates that are not finite become 0."""
    points = np.nan_to_num(np.asarray(boxes, np.float64).reshape(-1, 4), posinf=0.0, neginf=0.0)
    points = np.clip(np.rint(points), 0, [width - 1, height - 1, width - 1, height - 1]).astype(int)
    return [(int(a), int(b), int(c), int(d)) for a, b, c, d in points]


def _paste_label(image: NDArray[np.uint8], mask: NDArray[np.uint8], corner_xy: tuple[int, int], colour: Colour) -> None:
    """Puts a text above the top left corner of a box, or below it where the picture ends, and moves it left to stay in.

    Args:
        image: (H, W, 3) BGR, changed in place.
        mask: (h, w), 255 where there is ink.
        corner_xy: of the box.
        colour: of the paper.
    """
    tall, wide = min(mask.shape[0], image.shape[0]), min(mask.shape[1], image.shape[1])
    mask = mask[:tall, :wide]
    left, top = corner_xy
    x = min(max(left, 0), image.shape[1] - wide)
    y = top - tall if top >= tall else min(top, image.shape[0] - tall)
    ink = np.array(text_colour(colour), np.float32)
    paper = np.array(colour, np.float32)
    share = mask[:, :, None].astype(np.float32) / 255
    image[y : y + tall, x : x + wide] = np.rint(paper + (ink - paper) * share).astype(np.uint8)


@lru_cache(maxsize=2048)
def _text_mask(runs: tuple[TextRun, ...], size: int) -> NDArray[np.uint8]:
    """Renders runs of text next to each other as a grey mask (height, width), 255 where there is ink."""
    fonts = [open_font(run.font, size) for run in runs]
    boxes = [font.getbbox(run.text, anchor="ls") for font, run in zip(fonts, runs, strict=True)]
    advances = [font.getlength(run.text) for font, run in zip(fonts, runs, strict=True)]
    padding = max(2, round(size * TEXT_PADDING))
    # A common height for all labels of a size looks calmer than one that follows each text; some scripts are taller.
    above = max(round(size * 0.78), *(-round(box[1]) for box in boxes))
    below = max(round(size * 0.22), *(round(box[3]) for box in boxes))
    canvas = Image.new("L", (round(sum(advances)) + 2 * padding, above + below + padding))
    pen = ImageDraw.Draw(canvas)
    x = float(padding)
    for font, run, advance in zip(fonts, runs, advances, strict=True):
        pen.text((x, padding // 2 + above), run.text, fill=255, font=font, anchor="ls")
        x += advance
    return np.asarray(canvas)
