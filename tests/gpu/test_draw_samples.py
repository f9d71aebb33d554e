"""The kernel that draws samples against its plain twin: on a GPU, or on the CPU in Triton's interpreter."""

import os

import pytest
import torch
from torch import Tensor

from yolov9.ops import draw_samples as table
from yolov9.ops.draw_samples import draw_samples
from yolov9.ops.plain import plain_operations

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
SIZES_HW = ((40, 56), (33, 21), (64, 64), (9, 100))
SHAPES = [(1, 8, 72)] if INTERPRETED else [(4, 96, 100), (3, 640, 640)]
MOST_OFF = 2e-3
"""Share of values that may differ: another order of rounding takes a point over the edge of a tile or of a level."""
pytestmark = pytest.mark.gpu(interpreter=True)


def _sources(generator: torch.Generator) -> tuple[Tensor, list[int]]:
    sizes = [3 * height * width for height, width in SIZES_HW]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return torch.randint(0, 256, (sum(sizes),), generator=generator, dtype=torch.uint8), starts


def _tile(number: int, canvas: float, average: int) -> list[float]:
    """One of four quarters of the canvas, which its source covers."""
    height, width = SIZES_HW[number]
    half = canvas / 2
    x, y = half * (number % 2), half * (number // 2)
    return [x, y, x + half, y + half, x, y, width / half, height / half, float(average), float(width), float(height)]


def _batch(shape: tuple[int, int, int], average: int, *, masked: bool) -> list[Tensor]:
    """Two turned scenes, in perspective, of four sources each, and room for the result."""
    batch, height, width = shape
    generator = torch.Generator().manual_seed(batch * width + average)
    pictures, starts = _sources(generator)
    row_bytes = (width + 7) // 8
    masks = torch.randint(0, 256, (height * row_bytes,), generator=generator, dtype=torch.uint8)
    floats = torch.zeros(batch, table.TABLE_FLOATS)
    places = torch.zeros(batch, table.TABLE_PLACES, dtype=torch.int64)
    canvas = 1.3 * max(height, width)
    for sample in range(batch):
        head = [2.0 - sample % 2, 0.4, 1.0, 1.01, 0.6, 1.3]
        for scene in range(table.SCENES):
            turn = 0.2 + 0.1 * sample - 0.3 * scene
            head += [1.1, turn, -3.0, -turn, 1.0, 5.0, 2e-4, 1e-4, 1.0, canvas, float(table.TILES)]
            head += [value for number in range(table.TILES) for value in _tile(number, canvas, average)]
        floats[sample] = torch.tensor(head)
        places[sample] = torch.tensor([0 if masked else -1, *starts] * table.SCENES)
    out = torch.zeros(batch, height, width, 3, dtype=torch.uint8)
    return [tensor.to(DEVICE) for tensor in (pictures, masks, floats, places, out)]


def _fused(pictures: Tensor, masks: Tensor, floats: Tensor, places: Tensor, out: Tensor) -> None:
    from yolov9.ops.draw_samples_triton import draw_samples_fused

    draw_samples_fused(pictures, masks, floats, places, out)


@pytest.mark.parametrize(("average", "masked"), [(1, True), (2, False), (4, True)])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernel_draws_what_its_twin_draws(shape: tuple[int, int, int], average: int, masked: bool) -> None:
    inputs = _batch(shape, average, masked=masked)
    with plain_operations():
        draw_samples(*inputs)
    expected = inputs[-1].clone()
    _fused(*inputs)
    differences = (inputs[-1].int() - expected.int()).abs()
    assert expected.float().std() > 10
    assert (differences > 1).float().mean() < MOST_OFF
    assert (differences > 0).float().mean() < 10 * MOST_OFF


def test_colours_that_do_not_change_stay() -> None:
    inputs = _batch(SHAPES[0], 1, masked=False)
    inputs[2][:, 2] = 0.0
    with plain_operations():
        draw_samples(*inputs)
    expected = inputs[-1].clone()
    _fused(*inputs)
    assert (inputs[-1].int() - expected.int()).abs().float().mean() < MOST_OFF
