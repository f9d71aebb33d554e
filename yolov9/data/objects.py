"""The objects of a sample in pixels: class, box and, where the labels have one, outline."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from yolov9.data.augment import mirror_boxes
from yolov9.data.box_convert import clip_to_picture, xywhn_to_xyxy, xyxy_to_xywhn
from yolov9.data.geometry import (
    MIN_AREA_BOX,
    MIN_AREA_POLYGON,
    Floats,
    box_candidates,
    outline_box,
    warp_boxes,
)

EDGE = 1e-3
"""Distance in pixels that boxes keep from the right and bottom edge when they are written; published recipe."""


class Objects(NamedTuple):
    """n objects on one canvas. Boxes and outlines always have the same count: an object without outline holds None."""

    classes: Floats
    """(n,)."""
    boxes: Floats
    """(n, 4): x1, y1, x2, y2 in pixels."""
    outlines: list[Floats | None]
    """n times: points (k, 2) in pixels, or None."""

    def has_outline(self) -> NDArray[np.bool_]:
        """Returns (n,): objects that have an outline."""
        return np.array([outline is not None for outline in self.outlines], dtype=np.bool_)


def place_objects(
    labels: NDArray[np.float32],
    outlines: Sequence[NDArray[np.float32] | None],
    scaled_wh: Floats,
    offset_xy: Floats,
) -> Objects:
    """Puts labels onto a canvas.

    Args:
        labels: (n, 5) class, cx, cy, w, h, normalised.
        outlines: n outlines (k, 2), normalised, or None.
        scaled_wh: (n, 2) size that the whole picture of each label has on the canvas.
        offset_xy: (n, 2) that picture's top left corner on the canvas.
    """
    table = labels.astype(np.float64)
    boxes = xywhn_to_xyxy(table[:, 1:], scaled_wh, offset_xy).astype(np.float64)
    placed: list[Floats | None] = [
        None if outline is None else outline * scaled_wh[number] + offset_xy[number]
        for number, outline in enumerate(outlines)
    ]
    return Objects(table[:, 0], boxes, placed)


def join_objects(parts: Sequence[Objects]) -> Objects:
    """Returns the objects of several pictures on the same canvas as one."""
    return Objects(
        np.concatenate([part.classes for part in parts]),
        np.concatenate([part.boxes for part in parts]),
        [outline for part in parts for outline in part.outlines],
    )


def clip_objects(objects: Objects, size_hw: tuple[int, int]) -> Objects:
    """Limits boxes and outlines to the canvas; nothing is dropped."""
    limit = (size_hw[1], size_hw[0])
    outlines: list[Floats | None] = [None if o is None else np.clip(o, 0.0, limit) for o in objects.outlines]
    return objects._replace(boxes=clip_to_picture(objects.boxes, *limit).astype(np.float64), outlines=outlines)


def mirror_objects(objects: Objects, numbers: NDArray[np.intp], width: float) -> Objects:
    """Returns the chosen objects mirrored left-right in a canvas of that width."""
    outlines: list[Floats | None] = []
    for number in numbers.tolist():
        outline = objects.outlines[number]
        outlines.append(None if outline is None else np.stack((width - outline[:, 0], outline[:, 1]), axis=1))
    return Objects(objects.classes[numbers], mirror_boxes(objects.boxes[numbers], width), outlines)


def warp_objects(
    objects: Objects, matrix: Floats, scale: float, out_hw: tuple[int, int], *, use_outlines: bool = True
) -> tuple[Floats, Floats]:
    """Warps objects and drops those of which too little is left.

    Args:
        objects: on the canvas.
        matrix: (3, 3) from canvas to output.
        scale: the scale that was drawn for the matrix; areas are compared after it.
        out_hw: size of the output.
        use_outlines: take the box of the visible part of the outline where there is one.

    Returns:
        Classes (m,) and boxes (m, 4) in pixels of the output, clipped to it.
    """
    after = warp_boxes(objects.boxes, matrix, out_hw)
    min_area = np.full(len(after), MIN_AREA_BOX)
    if use_outlines:
        for number, outline in enumerate(objects.outlines):
            if outline is not None:
                after[number] = outline_box(outline, matrix, out_hw)
                min_area[number] = MIN_AREA_POLYGON
    kept = box_candidates(objects.boxes * scale, after, min_area)
    return objects.classes[kept], after[kept]


def to_labels(classes: Floats, boxes: Floats, size_hw: tuple[int, int]) -> Floats:
    """Returns rows (n, 5) class, cx, cy, w, h, normalised; boxes are clipped to the picture first."""
    rows = xyxy_to_xywhn(boxes, size_hw[1], size_hw[0], clip_margin=EDGE)
    return np.concatenate((classes[:, None], rows), axis=1)
