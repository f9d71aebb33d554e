"""The kernel that draws training samples; its plain twin is in `draw_samples`, which says what is computed."""

import triton
import triton.language as tl
from torch import Tensor

from yolov9.ops import draw_samples as table

BLOCK_W = 64
BLOCK_H = 4
"""Output pixels of a program: neighbours in a row read neighbours in a source."""
WARPS = 4


@triton.jit
def _channel(place, level, chroma):
    k = tl.where(place >= 6.0, place - 6.0, place)
    share = tl.maximum(0.0, tl.minimum(1.0, tl.minimum(k, 4.0 - k)))
    return (level - chroma * share + 1e-4).to(tl.int32)


@triton.jit
def _recolour(red, green, blue, hue, saturation, value):
    most = tl.maximum(tl.maximum(red, green), blue)
    spread = most - tl.minimum(tl.minimum(red, green), blue)
    place = tl.where(
        most == red,
        green - blue,
        tl.where(most == green, blue - red + 2.0 * spread, red - green + 4.0 * spread),
    )
    place = (place * (30.0 / tl.maximum(spread, 1.0)) + 30.5).to(tl.int32).to(tl.float32) - 30.0
    place = tl.where(place < 0.0, place + 180.0, place)
    place = (place * hue).to(tl.int32).to(tl.float32) * (1.0 / 30.0)
    place = tl.where(place >= 6.0, place - 6.0, place)
    strength = (spread * (255.0 / tl.maximum(most, 1.0)) + 0.5).to(tl.int32).to(tl.float32)
    strength = tl.minimum(strength * saturation, 255.0).to(tl.int32).to(tl.float32)
    level = tl.minimum(most * value, 255.0).to(tl.int32).to(tl.float32)
    chroma = level * strength * (1.0 / 255.0)
    red = _channel(place + 5.0, level, chroma)
    green = _channel(place + 3.0, level, chroma)
    blue = _channel(place + 1.0, level, chroma)
    return red, green, blue


@triton.jit
def _plane(plane, top, bottom, left, right, x_share, y_share, inside):
    """Levels of one colour between four pixels."""
    a = tl.load(plane + top + left, mask=inside, other=0).to(tl.float32)
    b = tl.load(plane + top + right, mask=inside, other=0).to(tl.float32)
    c = tl.load(plane + bottom + left, mask=inside, other=0).to(tl.float32)
    d = tl.load(plane + bottom + right, mask=inside, other=0).to(tl.float32)
    upper = a * (1.0 - x_share) + b * x_share
    lower = c * (1.0 - x_share) + d * x_share
    return upper * (1.0 - y_share) + lower * y_share


@triton.jit
def _scene(
    pictures, masks, scene, places, column, row, shown, row_bytes,
    GREY: tl.constexpr, SCENE_FLOATS: tl.constexpr, TILE_FLOATS: tl.constexpr,
):  # fmt: skip
    """Red, green and blue of one scene, rounded to whole levels."""
    at_x, at_y = column.to(tl.float32) + 0.5, row.to(tl.float32) + 0.5
    x = at_x * tl.load(scene) + at_y * tl.load(scene + 1) + tl.load(scene + 2)
    y = at_x * tl.load(scene + 3) + at_y * tl.load(scene + 4) + tl.load(scene + 5)
    depth = at_x * tl.load(scene + 6) + at_y * tl.load(scene + 7) + tl.load(scene + 8)
    x, y = x / depth, y / depth
    mask_start = tl.load(places)
    if mask_start >= 0:
        bits = tl.load(masks + mask_start + row * row_bytes + column // 8, mask=shown, other=0).to(tl.int32)
        x = tl.where(((bits >> (column % 8)) & 1) == 1, tl.load(scene + 9) - x, x)
    red = tl.full(x.shape, GREY, tl.float32)
    green = tl.full(x.shape, GREY, tl.float32)
    blue = tl.full(x.shape, GREY, tl.float32)
    for number in range(tl.load(scene + 10).to(tl.int32)):
        tile = scene + SCENE_FLOATS + number * TILE_FLOATS
        inside = (x >= tl.load(tile)) & (x < tl.load(tile + 2)) & (y >= tl.load(tile + 1)) & (y < tl.load(tile + 3))
        inside = inside & shown
        if tl.max(inside.to(tl.int32), axis=0) > 0:
            average = tl.load(tile + 8).to(tl.int32)
            wide, high = tl.load(tile + 9).to(tl.int32), tl.load(tile + 10).to(tl.int32)
            u = (x - tl.load(tile + 4)) * tl.load(tile + 6) / average.to(tl.float32) - 0.5
            v = (y - tl.load(tile + 5)) * tl.load(tile + 7) / average.to(tl.float32) - 0.5
            # Points of other tiles are far outside, where a whole number might overflow.
            u, v = tl.where(inside, u, 0.0), tl.where(inside, v, 0.0)
            low_x, low_y = tl.floor(u), tl.floor(v)
            x_share, y_share = u - low_x, v - low_y
            last_x, last_y = (wide + average - 1) // average - 1, (high + average - 1) // average - 1
            x0 = tl.minimum(tl.maximum(low_x.to(tl.int32), 0), last_x) * average
            x1 = tl.minimum(tl.maximum(low_x.to(tl.int32) + 1, 0), last_x) * average
            y0 = tl.minimum(tl.maximum(low_y.to(tl.int32), 0), last_y) * average
            y1 = tl.minimum(tl.maximum(low_y.to(tl.int32) + 1, 0), last_y) * average
            plane = pictures + tl.load(places + 1 + number)
            r = tl.zeros(x.shape, tl.float32)
            g = tl.zeros(x.shape, tl.float32)
            b = tl.zeros(x.shape, tl.float32)
            for dy in range(average):
                top, bottom = tl.minimum(y0 + dy, high - 1) * wide, tl.minimum(y1 + dy, high - 1) * wide
                for dx in range(average):
                    left, right = tl.minimum(x0 + dx, wide - 1), tl.minimum(x1 + dx, wide - 1)
                    r += _plane(plane, top, bottom, left, right, x_share, y_share, inside)
                    g += _plane(plane + wide * high, top, bottom, left, right, x_share, y_share, inside)
                    b += _plane(plane + 2 * wide * high, top, bottom, left, right, x_share, y_share, inside)
            share = 1.0 / (average * average).to(tl.float32)
            red = tl.where(inside, tl.floor(r * share + 0.5), red)
            green = tl.where(inside, tl.floor(g * share + 0.5), green)
            blue = tl.where(inside, tl.floor(b * share + 0.5), blue)
    return red, green, blue


@triton.jit(do_not_specialize=["height", "width"])
def _draw_kernel(
    pictures, masks, floats, places, out, height, width,
    GREY: tl.constexpr, TABLE_FLOATS: tl.constexpr, TABLE_PLACES: tl.constexpr, SAMPLE_FLOATS: tl.constexpr,
    SCENE_FLOATS: tl.constexpr, TILE_FLOATS: tl.constexpr, SCENE_TOTAL: tl.constexpr, SCENE_PLACES: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """One block of one sample."""
    sample = tl.program_id(2).to(tl.int64)
    within = tl.arange(0, BLOCK_H * BLOCK_W)
    column, row = tl.program_id(0) * BLOCK_W + within % BLOCK_W, tl.program_id(1) * BLOCK_H + within // BLOCK_W
    shown = (column < width) & (row < height)
    row_bytes = (width + 7) // 8
    floats += sample * TABLE_FLOATS
    places += sample * TABLE_PLACES
    first = floats + SAMPLE_FLOATS
    red, green, blue = _scene(
        pictures, masks, first, places, column, row, shown, row_bytes, GREY, SCENE_FLOATS, TILE_FLOATS
    )
    if tl.load(floats) > 1.5:
        ratio = tl.load(floats + 1)
        r, g, b = _scene(
            pictures, masks, first + SCENE_TOTAL, places + SCENE_PLACES, column, row, shown, row_bytes,
            GREY, SCENE_FLOATS, TILE_FLOATS,
        )  # fmt: skip
        red = tl.floor(red * ratio + r * (1.0 - ratio) + 0.5)
        green = tl.floor(green * ratio + g * (1.0 - ratio) + 0.5)
        blue = tl.floor(blue * ratio + b * (1.0 - ratio) + 0.5)
    red_level, green_level, blue_level = red.to(tl.int32), green.to(tl.int32), blue.to(tl.int32)
    if tl.load(floats + 2) > 0.5:
        red_level, green_level, blue_level = _recolour(
            red, green, blue, tl.load(floats + 3), tl.load(floats + 4), tl.load(floats + 5)
        )
    at = out + ((sample * height + row) * width + column) * 3
    tl.store(at, red_level.to(tl.uint8), mask=shown)
    tl.store(at + 1, green_level.to(tl.uint8), mask=shown)
    tl.store(at + 2, blue_level.to(tl.uint8), mask=shown)


def draw_samples_fused(pictures: Tensor, masks: Tensor, floats: Tensor, places: Tensor, out: Tensor) -> None:
    """Draws a batch; see `yolov9.ops.draw_samples.draw_samples`."""
    batch, height, width, _ = out.shape
    _draw_kernel[(triton.cdiv(width, BLOCK_W), triton.cdiv(height, BLOCK_H), batch)](
        pictures, masks, floats, places, out, height, width,
        GREY=table.GREY, TABLE_FLOATS=table.TABLE_FLOATS, TABLE_PLACES=table.TABLE_PLACES,
        SAMPLE_FLOATS=table.SAMPLE_FLOATS, SCENE_FLOATS=table.SCENE_FLOATS, TILE_FLOATS=table.TILE_FLOATS,
        SCENE_TOTAL=table.SCENE_TOTAL, SCENE_PLACES=table.SCENE_PLACES, BLOCK_H=BLOCK_H, BLOCK_W=BLOCK_W,
        num_warps=WARPS,
    )  # fmt: skip
