"""Draws training samples from decoded pictures on the device: tiles, warp, blend and colours in one step."""

import torch
from torch import Tensor

from yolov9.ops.plain import kernels_take

GREY = 114.0
"""Where no picture lies; as `BORDER_GREY` of the published recipe."""
SAMPLE_FLOATS = 6
"""Scenes, share of the first one, 1 where colours change, factors of hue, saturation and value."""
SCENE_FLOATS = 11
"""Matrix (3 x 3) from output to canvas, width of the canvas, number of tiles."""
TILE_FLOATS = 11
"""x1, y1, x2, y2 and corner x, y on the canvas; source pixels per canvas pixel in x and y; how many source pixels, in
each direction, make one; width and height of the source."""
SCENES = 2
TILES = 4
SCENE_TOTAL = SCENE_FLOATS + TILES * TILE_FLOATS
TABLE_FLOATS = SAMPLE_FLOATS + SCENES * SCENE_TOTAL
SCENE_PLACES = 1 + TILES
TABLE_PLACES = SCENES * SCENE_PLACES
"""Per scene: where its mask begins (negative: it has none), and where the source of each tile begins."""


def draw_samples(pictures: Tensor, masks: Tensor, floats: Tensor, places: Tensor, out: Tensor) -> None:
    """Draws a batch.

    A pixel's centre is taken to the canvas (and mirrored there, where the mask has a bit). The tile that it lies in
    gives the value between its four nearest pixels, or grey. Two scenes are blended; then the colours change as in
    `brush.c`. After each of the three a value is rounded to whole levels, as OpenCV does.

    Args:
        pictures: flat uint8; each source is a plane of red, one of green, one of blue.
        masks: flat uint8; a bit a pixel, lowest first, rows padded to bytes.
        floats: (B, TABLE_FLOATS) float32.
        places: (B, TABLE_PLACES) int64.
        out: (B, H, W, 3) uint8, overwritten.
    """
    if kernels_take(out):
        from yolov9.ops.draw_samples_triton import draw_samples_fused

        draw_samples_fused(pictures, masks, floats, places, out)
        return
    for sample, row in enumerate(floats):
        _draw_sample(pictures, masks, row, places[sample], out[sample])


def _draw_sample(pictures: Tensor, masks: Tensor, row: Tensor, places: Tensor, out: Tensor) -> None:
    scenes, ratio, changes, *factors = row[:SAMPLE_FLOATS].tolist()
    drawn = []
    for number in range(int(scenes)):
        start = SAMPLE_FLOATS + number * SCENE_TOTAL
        at = places[number * SCENE_PLACES : (number + 1) * SCENE_PLACES].tolist()
        drawn.append(_draw_scene(pictures, masks, row[start : start + SCENE_TOTAL], at, (out.shape[0], out.shape[1])))
    colours = drawn[0]
    if len(drawn) == SCENES:
        colours = (drawn[0] * ratio + drawn[1] * (1 - ratio) + 0.5).floor()
    if changes:
        colours = _recolour(colours, *factors)
    out.copy_(colours.permute(1, 2, 0))


def _draw_scene(pictures: Tensor, masks: Tensor, scene: Tensor, places: list[int], hw: tuple[int, int]) -> Tensor:
    """Returns (3, H, W) float32 whole levels."""
    back, (width, tiles) = scene[:9].view(3, 3), scene[9:SCENE_FLOATS].tolist()
    columns = torch.arange(hw[1], device=scene.device) + 0.5
    rows = (torch.arange(hw[0], device=scene.device) + 0.5)[:, None]
    x, y, depth = (columns * back[k, 0] + rows * back[k, 1] + back[k, 2] for k in range(3))
    x, y = x / depth, y / depth
    if places[0] >= 0:
        x = torch.where(_mask_bits(masks, places[0], hw), width - x, x)
    colours = torch.full((3, *hw), GREY, device=scene.device)
    for number in range(int(tiles)):
        start = SCENE_FLOATS + number * TILE_FLOATS
        tile = scene[start : start + TILE_FLOATS]
        inside = (x >= tile[0]) & (x < tile[2]) & (y >= tile[1]) & (y < tile[3])
        if inside.any():
            at = ((x[inside] - tile[4]) * tile[6], (y[inside] - tile[5]) * tile[7])
            colours[:, inside] = _between(pictures, places[1 + number], tile, *at)
    return colours


def _mask_bits(masks: Tensor, start: int, hw: tuple[int, int]) -> Tensor:
    row_bytes = (hw[1] + 7) // 8
    packed = masks[start : start + hw[0] * row_bytes].view(hw[0], row_bytes, 1)
    bits = (packed >> torch.arange(8, device=masks.device, dtype=torch.uint8)) & 1
    return bits.view(hw[0], -1)[:, : hw[1]] == 1


def _between(pictures: Tensor, start: int, tile: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Returns the levels (3, n) at points (in source pixels, from the edge) of a source, rounded."""
    average, width, height = (int(value) for value in tile[8:].tolist())
    planes = pictures[start : start + 3 * width * height].view(3, height, width)
    x_low, x_high, x_share = _neighbours(x / average, -(-width // average))
    y_low, y_high, y_share = _neighbours(y / average, -(-height // average))
    total = torch.zeros((3, len(x)), device=pictures.device)
    for dy in range(average):
        for dx in range(average):
            left, right = ((k * average + dx).clamp(max=width - 1) for k in (x_low, x_high))
            top, bottom = ((k * average + dy).clamp(max=height - 1) for k in (y_low, y_high))
            upper = planes[:, top, left] * (1 - x_share) + planes[:, top, right] * x_share
            lower = planes[:, bottom, left] * (1 - x_share) + planes[:, bottom, right] * x_share
            total += upper * (1 - y_share) + lower * y_share
    return (total / (average * average) + 0.5).floor()


def _neighbours(place: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the two pixels whose centres are nearest, and the share of the second."""
    low = (place - 0.5).floor()
    share = place - 0.5 - low
    return low.clamp(0, size - 1).long(), (low + 1).clamp(0, size - 1).long(), share


def _recolour(colours: Tensor, hue: float, saturation: float, value: float) -> Tensor:
    """Changes (3, H, W: red, green, blue) whole levels; see `brush.c` for each step."""
    red, green, blue = colours
    most = colours.amax(dim=0)
    spread = most - colours.amin(dim=0)
    place = torch.where(
        most == red,
        green - blue,
        torch.where(most == green, blue - red + 2 * spread, red - green + 4 * spread),
    )
    place = (place * (30.0 / spread.clamp(min=1)) + 30.5).trunc() - 30
    place = torch.where(place < 0, place + 180, place)
    place = (place * hue).trunc() * (1 / 30)
    place = torch.where(place >= 6, place - 6, place)
    strength = (spread * (255.0 / most.clamp(min=1)) + 0.5).trunc()
    strength = (strength * saturation).clamp(max=255).trunc()
    level = (most * value).clamp(max=255).trunc()
    chroma = level * strength * (1 / 255)
    return torch.stack([_channel(place + shift, level, chroma) for shift in (5, 3, 1)])


def _channel(place: Tensor, level: Tensor, chroma: Tensor) -> Tensor:
    k = torch.where(place >= 6, place - 6, place)
    share = torch.minimum(k, 4 - k).clamp(0, 1)
    return (level - chroma * share + 1e-4).trunc()
