"""A scene: which pictures and objects lie where on a canvas, and the matrix that takes the canvas to the output.

Everything random about the geometry is drawn here, before any pixel is read.
"""

from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np

from yolov9.data.augment import Picture, copy_paste_candidates, copy_paste_choice, outline_mask
from yolov9.data.brush import OPENCV, Brush
from yolov9.data.geometry import (
    Floats,
    PerspectiveLimits,
    draw_perspective,
    on_whole_pixel,
    perspective_matrix,
    warp_points,
)
from yolov9.data.letterbox import loaded_hw, plan_letterbox
from yolov9.data.mosaic import compose
from yolov9.data.objects import Objects, clip_objects, join_objects, mirror_objects, place_objects, warp_objects
from yolov9.data.tiles import ReadPicture, Tile, letterbox_tile, mirror_matrix, mosaic_tiles


class Labelled(NamedTuple):
    """Size and labels of one picture."""

    picture: int
    """Number in the index."""
    size_wh: tuple[int, int]
    """Upright size in pixels."""
    labels: np.ndarray
    """(n, 5) float32: class, cx, cy, w, h, normalised."""
    outlines: Sequence[np.ndarray | None]
    """n outlines (k, 2), normalised, or None."""


class Scene(NamedTuple):
    """Pictures and objects on a canvas."""

    tiles: list[Tile]
    objects: Objects
    """All objects, copied ones too."""
    copied: list[Floats]
    """Outlines, on the canvas, of objects whose mirror image is to be pasted."""
    canvas_hw: tuple[int, int]
    matrix: Floats
    """(3, 3) from canvas to output, without flips."""
    scale: float
    """The scale that was drawn."""
    use_outlines: bool
    """Boxes follow the outlines when they are warped."""


def mosaic_scene(
    rng: np.random.Generator, four: Sequence[Labelled], imgsz: int, limits: PerspectiveLimits, copy_paste: float
) -> Scene:
    """Draws a mosaic: four pictures in random places around a random centre, then a random perspective.

    The canvas has twice the size of the output; an undistorted perspective shows the middle of it.
    """
    side = 2 * imgsz
    pieces = [four[place] for place in rng.permutation(len(four)).tolist()]
    centre_y, centre_x = rng.uniform(imgsz / 2, side - imgsz / 2, 2).astype(int).tolist()
    tiles = mosaic_tiles([p.picture for p in pieces], [p.size_wh for p in pieces], (centre_x, centre_y), imgsz)
    objects = mosaic_objects(tiles, pieces, imgsz)
    copied: list[Floats] = []
    if copy_paste:
        objects, copied = copy_objects(rng, objects, copy_paste, side)
    draws = draw_perspective(rng, limits)
    matrix = on_whole_pixel(perspective_matrix(draws, (side, side), (imgsz, imgsz)), (centre_x, centre_y))
    return Scene(tiles, objects, copied, (side, side), matrix, draws.scale, use_outlines=True)


def single_scene(
    rng: np.random.Generator, one: Labelled, imgsz: int, out_hw: tuple[int, int], limits: PerspectiveLimits
) -> Scene:
    """Draws one picture, scaled and padded to the output shape, then a random perspective.

    As in the published recipe, boxes follow their corners here, not their outlines.
    """
    width, height = one.size_wh
    plan = plan_letterbox(loaded_hw((height, width), imgsz), out_hw, auto=False)
    tile = letterbox_tile(one.picture, one.size_wh, plan)
    objects = letterbox_objects(one, imgsz, out_hw, scaleup=True)
    draws = draw_perspective(rng, limits)
    matrix = on_whole_pixel(perspective_matrix(draws, out_hw, out_hw), tile.offset_xy)
    return Scene([tile], objects, [], out_hw, matrix, draws.scale, use_outlines=False)


def mosaic_objects(tiles: Sequence[Tile], pieces: Sequence[Labelled], imgsz: int) -> Objects:
    """Returns the objects of four placed pictures, limited to the canvas of 2 x imgsz."""
    counts = [len(piece.labels) for piece in pieces]
    places = np.array([(*tile.scaled_wh, *tile.offset_xy) for tile in tiles], np.float64).repeat(counts, axis=0)
    labels = np.concatenate([piece.labels for piece in pieces])
    outlines = [outline for piece in pieces for outline in piece.outlines]
    return clip_objects(place_objects(labels, outlines, places[:, :2], places[:, 2:]), (2 * imgsz, 2 * imgsz))


def letterbox_objects(one: Labelled, imgsz: int, out_hw: tuple[int, int], *, scaleup: bool) -> Objects:
    """Returns the objects of one picture that is scaled to `imgsz` and padded to the output shape."""
    height, width = loaded_hw((one.size_wh[1], one.size_wh[0]), imgsz)
    plan = plan_letterbox((height, width), out_hw, auto=False, scaleup=scaleup)
    scaled_wh = np.array((plan.ratio_wh[0] * width, plan.ratio_wh[1] * height))
    shape = len(one.labels), 2
    return place_objects(
        one.labels, one.outlines, np.broadcast_to(scaled_wh, shape), np.broadcast_to(np.array(plan.pad_wh), shape)
    )


def copy_objects(rng: np.random.Generator, objects: Objects, share: float, width: int) -> tuple[Objects, list[Floats]]:
    """Chooses objects with outlines to be pasted left-right mirrored.

    Returns:
        The objects with the mirrored ones at the end, and the outlines that are to be cut out (not mirrored).
    """
    has_outline = objects.has_outline()
    if not has_outline.any():
        return objects, []
    candidates = copy_paste_candidates(objects.boxes, has_outline, width)
    if not len(candidates):
        return objects, []
    chosen = copy_paste_choice(rng, candidates, share)
    outlines = [outline for number in chosen.tolist() if (outline := objects.outlines[number]) is not None]
    return join_objects((objects, mirror_objects(objects, chosen, width))), outlines


def scene_boxes(scene: Scene, out_hw: tuple[int, int]) -> tuple[Floats, Floats]:
    """Returns classes (n,) and boxes (n, 4), in output pixels before flips, of what is left of the objects."""
    return warp_objects(scene.objects, scene.matrix, scene.scale, out_hw, use_outlines=scene.use_outlines)


def paint(
    scene: Scene,
    flip: Floats,
    read: ReadPicture,
    out: Picture,
    brush: Brush = OPENCV,
    factors: Floats | None = None,
) -> None:
    """Draws a scene.

    Args:
        scene: what to draw.
        flip: (3, 3) matrix that is applied last.
        read, brush, factors: see `compose`.
        out: (H, W, 3), overwritten.
    """
    matrix = flip @ scene.matrix
    compose(scene.tiles, matrix, read, out, brush, factors)
    if not scene.copied:
        return
    mirrored = matrix @ mirror_matrix(scene.canvas_hw[1])
    mask = pasted_mask(scene, matrix, (out.shape[0], out.shape[1]))
    if mask.any():
        donor = np.empty_like(out)
        compose(scene.tiles, mirrored, read, donor, brush, factors)
        cv2.copyTo(donor, mask, out)


def pasted_mask(scene: Scene, matrix: Floats, out_hw: tuple[int, int]) -> Picture:
    """Returns a mask (H, W) that is 1 where the canvas is shown mirrored, through the outlines of copied objects.

    Args:
        scene: its outlines are mirrored here.
        matrix: (3, 3) from canvas to output, flips included.
        out_hw: size of the output.
    """
    mirrored = matrix @ mirror_matrix(scene.canvas_hw[1])
    # A vertex of an outline means the pixel that it lies in: its centre is moved, and OpenCV wants the pixel's number.
    outlines = [(warp_points(np.floor(outline) + 0.5, mirrored) - 0.5).round() for outline in scene.copied]
    return outline_mask(outlines, out_hw)
