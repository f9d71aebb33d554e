"""Draws the objects of the embedded data set: five kinds, each with its own outline, texture and range of colours."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Mask = NDArray[np.uint8]

_SUPERSAMPLING = 2  # objects are drawn at twice their size and reduced, which smooths their edges
_GRAIN = np.float32(0.025)  # roughness of every surface


@dataclass(frozen=True)
class Sprite:
    """A drawn object on its own."""

    colour: Floats
    """(s, s, 3) blue, green, red, 0 … 1."""
    alpha: Floats
    """(s, s) coverage, 0 … 1."""


def draw_object(kind: int, size: int, rng: np.random.Generator) -> Sprite:
    """Draws one object.

    Args:
        kind: place in `OBJECT_NAMES`.
        size: side of the square that it is drawn in, in pixels; turned objects touch or nearly touch its sides.
        rng: source of its turn, colours and texture.
    """
    side = size * _SUPERSAMPLING
    mask, paint = _KINDS[kind][1](side, rng)
    lit = _light(mask, paint, rng)
    small = (size, size)
    alpha = cv2.resize(mask.astype(np.float32) / 255, small, interpolation=cv2.INTER_AREA)
    colour = cv2.resize(lit, small, interpolation=cv2.INTER_AREA)
    return Sprite(np.asarray(colour, np.float32), np.asarray(alpha, np.float32))


def hsv(hue: float, saturation: float, value: float) -> Floats:
    """Returns blue, green, red (0 … 1) of a colour given by hue in degrees, saturation and value."""
    pixel = np.array([[[hue % 360, saturation, value]]], np.float32)
    return np.asarray(cv2.cvtColor(pixel, cv2.COLOR_HSV2BGR)[0, 0], np.float32)


def noise(height: int, width: int, cell: int, rng: np.random.Generator) -> Floats:
    """Returns (height, width) smooth noise, -1 … 1, with features about `cell` pixels wide."""
    grid = rng.uniform(-1, 1, (height // cell + 2, width // cell + 2)).astype(np.float32)
    return np.asarray(cv2.resize(grid, (width, height), interpolation=cv2.INTER_CUBIC), np.float32)


def _ball(side: int, rng: np.random.Generator) -> tuple[Mask, Floats]:
    """A striped beach ball, red and white."""
    y, x = _grid(side, rng.uniform(0, 2 * math.pi))
    mask = _filled(np.hypot(x, y) < 0.96)
    bulge = x / np.sqrt(np.clip(1 - 0.7 * y * y, 0.2, 1))  # stripes bend towards the poles
    red, white = hsv(rng.uniform(-12, 14), rng.uniform(0.75, 0.95), 0.9), hsv(40, 0.06, 0.97)
    return mask, _mix(red, white, np.sin(bulge * rng.uniform(7, 9)) > 0)


def _star(side: int, rng: np.random.Generator) -> tuple[Mask, Floats]:
    """A five-pointed golden star with folded facets."""
    turn = rng.uniform(0, 2 * math.pi)
    radii = np.where(np.arange(10) % 2, rng.uniform(0.42, 0.5), 0.98)
    mask = _polygon(side, radii, turn)
    y, x = _grid(side, turn)
    facet = np.floor((np.arctan2(y, x) + math.pi) / (math.pi / 5)).astype(np.int64) % 2 == 0
    gold = rng.uniform(44, 56)
    return mask, _mix(hsv(gold, 0.85, 0.98), hsv(gold - 10, 0.95, 0.72), facet)


def _gear(side: int, rng: np.random.Generator) -> tuple[Mask, Floats]:
    """A blue-grey cogwheel with a hole and scratches."""
    teeth = int(rng.integers(8, 12))
    turn = rng.uniform(0, 2 * math.pi)
    y, x = _grid(side, turn)
    radius = np.hypot(x, y)
    rim = np.where(np.sin(np.arctan2(y, x) * teeth) > 0, 0.97, 0.76)
    mask = _filled((radius < rim) & (radius > rng.uniform(0.24, 0.32)))
    steel = rng.uniform(200, 222)
    scratches = noise(side, side, 3, rng) * 0.12 + np.sin(radius * 42) * 0.06
    paint = hsv(steel, rng.uniform(0.45, 0.65), 0.72)[None, None] * (1 + scratches[..., None])
    return mask, paint.astype(np.float32)


def _leaf(side: int, rng: np.random.Generator) -> tuple[Mask, Floats]:
    """A green leaf with veins."""
    y, x = _grid(side, rng.uniform(0, 2 * math.pi))
    width = rng.uniform(0.42, 0.55)
    mask = _filled(np.abs(y) < width * np.clip(1 - (x / 0.97) ** 2, 0, 1) * (1 - 0.35 * x))
    green = rng.uniform(95, 130)
    veins = (np.abs(y) < 0.03) | (np.abs(((x - np.abs(y) * 0.9) * 5) % 1 - 0.5) < 0.09)
    blade = hsv(green, 0.8, 0.62)[None, None] * (1 + 0.22 * noise(side, side, max(4, side // 8), rng)[..., None])
    return mask, np.where(veins[..., None], hsv(green - 20, 0.5, 0.85), blade).astype(np.float32)


def _cube(side: int, rng: np.random.Generator) -> tuple[Mask, Floats]:
    """A violet cube seen from above: three faces, one of them chequered."""
    turn = rng.uniform(-0.35, 0.35) + math.pi / 6
    corners = _points(side, np.full(6, 0.97), turn)
    centre = np.array([[side / 2, side / 2]])
    mask = np.zeros((side, side), np.uint8)
    cv2.fillConvexPoly(mask, corners.astype(np.int32), 255, cv2.LINE_AA)
    violet = rng.uniform(278, 305)
    y, x = _grid(side, turn)
    chequer = (np.floor(x * 4).astype(np.int64) + np.floor(y * 4).astype(np.int64)) % 2 == 0
    paint = _mix(hsv(violet, 0.45, 0.95), hsv(violet, 0.7, 0.75), chequer)
    for first, value in ((0, 0.5), (2, 0.72)):
        face = np.concatenate([corners[first : first + 3], centre]).astype(np.int32)
        shade = hsv(violet, 0.75, value)
        cv2.fillConvexPoly(paint, face, [float(channel) for channel in shade])
    return mask, paint


_KINDS: tuple[tuple[str, Callable[[int, np.random.Generator], tuple[Mask, Floats]]], ...] = (
    ("ball", _ball),
    ("star", _star),
    ("gear", _gear),
    ("leaf", _leaf),
    ("cube", _cube),
)
OBJECT_NAMES = tuple(name for name, _ in _KINDS)
"""Class names of the embedded data set."""


def _light(mask: Mask, paint: Floats, rng: np.random.Generator) -> Floats:
    """Adds a bevel lit from above and fine grain to flat paint."""
    depth = cv2.distanceTransform(mask, cv2.DIST_L2, 3)
    height = np.sqrt(np.clip(depth / max(1.0, float(depth.max())), 0, 1)).astype(np.float32)
    height = cv2.GaussianBlur(height, (0, 0), max(1.0, len(mask) / 40))
    slope_x = cv2.Sobel(height, cv2.CV_32F, 1, 0)
    slope_y = cv2.Sobel(height, cv2.CV_32F, 0, 1)
    angle = rng.uniform(-2.4, -0.7)  # the light comes from above, left or right
    facing = slope_x * math.cos(angle) + slope_y * math.sin(angle)
    facing = np.clip(-facing * len(mask) / 12, -1, 1)
    shade = 0.82 + 0.3 * facing + 0.12 * height
    grain = _GRAIN * rng.standard_normal(mask.shape, np.float32)
    lit = paint * shade[..., None] + np.clip(facing - 0.75, 0, 1)[..., None] * 0.6 + grain[..., None]
    return np.asarray(lit.clip(0, 1), np.float32)


def _grid(side: int, turn: float) -> tuple[Floats, Floats]:
    """Returns y and x of every pixel, -1 … 1, in axes turned by `turn` radians."""
    axis = ((np.arange(side) + 0.5) / side * 2 - 1).astype(np.float32)
    cos, sin = axis * np.float32(math.cos(turn)), axis * np.float32(math.sin(turn))
    return cos[:, None] - sin[None, :], cos[None, :] + sin[:, None]


def _filled(inside: NDArray[np.bool_]) -> Mask:
    return inside.astype(np.uint8) * np.uint8(255)


def _mix(first: Floats, second: Floats, where: NDArray[np.bool_]) -> Floats:
    return np.where(where[..., None], first, second).astype(np.float32)


def _points(side: int, radii: NDArray[np.floating], turn: float) -> NDArray[np.float64]:
    """Returns corners (k, 2) in pixels at these radii (of the half side), evenly spaced in angle from `turn` on."""
    angles = turn + np.arange(len(radii)) * 2 * math.pi / len(radii)
    return side / 2 * (1 + np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.asarray(radii)[:, None])


def _polygon(side: int, radii: NDArray[np.floating], turn: float) -> Mask:
    mask = np.zeros((side, side), np.uint8)
    cv2.fillPoly(mask, [_points(side, radii, turn).astype(np.int32)], 255, cv2.LINE_AA)
    return mask
