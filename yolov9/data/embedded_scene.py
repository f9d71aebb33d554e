"""Composes a picture of the embedded data set: clutter, objects with shadows, some partly behind others."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from yolov9.data.embedded_objects import OBJECT_NAMES, Sprite, draw_object, hsv, noise

SIDES = (192, 208, 224, 256)
"""Widths and heights of the pictures in pixels."""
MOST_OBJECTS = 6
"""Objects in the fullest picture; the emptiest has none."""
SIZE_RANGE = (0.16, 0.5)
"""Side of an object, as a share of the picture's shorter side."""
LEAST_VISIBLE = 0.55
"""Share of an object that must not be hidden, by others or by the border."""

_BACKGROUND_SHARE = 0.04  # pictures without objects
_PLACING_TRIES = 12
_GRAIN = np.float32(0.012)  # noise of a camera
_INSIDE = 0.5  # alpha above which a pixel belongs to an object


@dataclass(frozen=True)
class Scene:
    """One picture with its labels."""

    image: NDArray[np.uint8]
    """Height x width x 3, blue, green, red."""
    labels: NDArray[np.float64]
    """(n, 5) class, centre x, centre y, width, height; 0 … 1."""


def draw_scene(rng: np.random.Generator) -> Scene:
    """Draws one picture; everything in it comes from `rng`."""
    height, width = int(rng.choice(SIDES)), int(rng.choice(SIDES))
    canvas = _background(height, width, rng)
    owner = np.full((height, width), -1, np.int64)  # which object shows at each pixel
    areas: list[int] = []
    labels: list[list[float]] = []
    count = 0 if rng.random() < _BACKGROUND_SHARE else int(rng.integers(1, MOST_OBJECTS + 1))
    for _ in range(count):
        kind = int(rng.integers(len(OBJECT_NAMES)))
        size = int(min(height, width) * rng.uniform(*SIZE_RANGE))
        sprite = draw_object(kind, size, rng)
        place = _find_place(sprite, owner, areas, rng)
        if place is None:
            continue
        inside = _paste(canvas, sprite, place, rng)
        areas.append(int((sprite.alpha > _INSIDE).sum()))
        owner[inside] = len(areas) - 1
        labels.append([kind, *_box_around(inside)])
    canvas += _GRAIN * rng.standard_normal((height, width, 1), np.float32)
    image = (canvas.clip(0, 1) * np.float32(255 * rng.uniform(0.75, 1.0))).astype(np.uint8)
    return Scene(image, np.array(labels, np.float64).reshape(-1, 5))


def _background(height: int, width: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """A surface in muted colours with cracks, blots and slats that are no objects."""
    base = hsv(rng.uniform(0, 360), rng.uniform(0.04, 0.28), rng.uniform(0.35, 0.75))
    other = hsv(rng.uniform(0, 360), rng.uniform(0.04, 0.28), rng.uniform(0.3, 0.7))
    blend = 0.5 + 0.5 * noise(height, width, 64, rng)[..., None]
    canvas = np.asarray(base * blend + other * (1 - blend), np.float32)
    canvas += 0.06 * noise(height, width, 16, rng)[..., None] + 0.05 * noise(height, width, 4, rng)[..., None]
    for _ in range(int(rng.integers(3, 10))):
        tone = [float(value) for value in hsv(rng.uniform(0, 360), rng.uniform(0, 0.25), rng.uniform(0.25, 0.8))]
        start, end = _point(height, width, rng), _point(height, width, rng)
        match rng.integers(3):
            case 0:
                cv2.line(canvas, start, end, tone, int(rng.integers(1, 7)), cv2.LINE_AA)
            case 1:
                axes = (int(rng.integers(4, 40)), int(rng.integers(4, 40)))
                cv2.ellipse(canvas, start, axes, float(rng.uniform(0, 180)), 0, 360, tone, -1, cv2.LINE_AA)
            case _:
                far = (start[0] + int(rng.integers(8, 60)), start[1] + int(rng.integers(8, 60)))
                cv2.rectangle(canvas, start, far, tone, int(rng.integers(1, 4)), cv2.LINE_AA)
    return np.asarray(cv2.GaussianBlur(canvas, (0, 0), rng.uniform(0.6, 1.4)), np.float32)


def _point(height: int, width: int, rng: np.random.Generator) -> tuple[int, int]:
    return int(rng.integers(width)), int(rng.integers(height))


def _find_place(
    sprite: Sprite, owner: NDArray[np.int64], areas: list[int], rng: np.random.Generator
) -> tuple[int, int] | None:
    """Returns top and left where the object and those under it stay visible enough; None when there is no room."""
    height, width = owner.shape
    size = len(sprite.alpha)
    area = int((sprite.alpha > _INSIDE).sum())
    visible = np.bincount(owner[owner >= 0], minlength=len(areas))
    for _ in range(_PLACING_TRIES):
        top = int(rng.integers(-size // 5, height - size + size // 5 + 1))
        left = int(rng.integers(-size // 5, width - size + size // 5 + 1))
        canvas_part, sprite_part = _overlap(owner.shape, size, top, left)
        covered = sprite.alpha[sprite_part] > _INSIDE
        hidden = owner[canvas_part][covered]
        hidden = np.bincount(hidden[hidden >= 0], minlength=len(areas))
        if covered.sum() < LEAST_VISIBLE * area:
            continue
        if all(visible[number] - hidden[number] >= LEAST_VISIBLE * areas[number] for number in range(len(areas))):
            return top, left
    return None


def _overlap(shape: tuple[int, ...], size: int, top: int, left: int) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """Returns the part of the canvas under a sprite at this place, and the part of the sprite on the canvas."""
    first_row, first_column = max(0, top), max(0, left)
    last_row, last_column = min(shape[0], top + size), min(shape[1], left + size)
    canvas_part = (slice(first_row, last_row), slice(first_column, last_column))
    sprite_part = (slice(first_row - top, last_row - top), slice(first_column - left, last_column - left))
    return canvas_part, sprite_part


def _paste(
    canvas: NDArray[np.float32], sprite: Sprite, place: tuple[int, int], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Draws a soft shadow and the object; returns which pixels of the canvas belong to the object."""
    size = len(sprite.alpha)
    drop = max(1, size // 14)
    shadow = cv2.GaussianBlur(sprite.alpha, (0, 0), max(1.0, size / 16)) * np.float32(rng.uniform(0.25, 0.5))
    for part, top, left in ((shadow, place[0] + drop, place[1] + drop // 2), (None, *place)):
        canvas_part, sprite_part = _overlap(canvas.shape, size, top, left)
        if part is not None:
            canvas[canvas_part] *= 1 - part[sprite_part][..., None]
            continue
        alpha = sprite.alpha[sprite_part][..., None]
        canvas[canvas_part] = canvas[canvas_part] * (1 - alpha) + sprite.colour[sprite_part] * alpha
        inside = np.zeros(canvas.shape[:2], bool)
        inside[canvas_part] = sprite.alpha[sprite_part] > _INSIDE
    return inside


def _box_around(inside: NDArray[np.bool_]) -> list[float]:
    """Returns the normalised box around the pixels of an object, the part behind others included."""
    rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    height, width = inside.shape
    top, bottom, left, right = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
    return [(left + right) / 2 / width, (top + bottom) / 2 / height, (right - left) / width, (bottom - top) / height]
