"""Fused kernels against float64 twins on random inputs: on a GPU, or on the CPU in Triton's interpreter."""

import copy
import os
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from yolov9.ops.join import Join
from yolov9.ops.norm_act import norm_act_plain
from yolov9.ops.plain import plain_operations
from yolov9.ops.recompute import recompute_activations

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.gpu(interpreter=True)
# The interpreter is slow and exact; a card works in bf16, which keeps 8 bits of fraction (one rounding: 2^-9 relative).
DEVICE, DTYPE, RELATIVE_ERROR = ("cpu", torch.float32, 2e-6) if INTERPRETED else ("cuda", torch.bfloat16, 3e-3)
SHAPES = [(4, 16, 20, 20), (2, 64, 13, 17), (3, 184, 10, 10), (1, 480, 13, 7)]
WIDTHS = {8: 8, 16: 16, 48: 16, 64: 64, 80: 16, 96: 32, 144: 32, 160: 32, 192: 64, 240: 128, 320: 64, 512: 128}
"""Columns of a matrix, and of its blocks."""
if not INTERPRETED:
    SHAPES.append((64, 32, 96, 96))


def _random(shape: tuple[int, ...], seed: int, scale: float = 1.0, shift: float = 0.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator) * scale + shift
    return values.to(DEVICE, DTYPE).contiguous(memory_format=torch.channels_last)


def _norm(channels: int, seed: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.03)
    generator = torch.Generator().manual_seed(seed)
    norm.weight.data.normal_(1, 0.3, generator=generator)
    norm.bias.data.normal_(0, 0.3, generator=generator)
    return norm.to(DEVICE)


def _relative(value: torch.Tensor, reference: torch.Tensor) -> float:
    return float(((value.double() - reference).norm() / reference.norm()).detach())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("branches", "residual"), [(1, False), (2, False), (1, True)])
def test_fused_norm_act_equals_the_float64_twin(shape: tuple[int, ...], branches: int, residual: bool) -> None:
    ys = [_random(shape, seed, scale=2.0, shift=0.7).requires_grad_() for seed in range(branches)]
    norms = [_norm(shape[1], seed) for seed in range(branches)]
    extra = _random(shape, 7).requires_grad_() if residual else None
    twins = [copy.deepcopy(norm).double() for norm in norms]
    twin_ys = [y.detach().double().requires_grad_() for y in ys]
    twin_extra = extra.detach().double().requires_grad_() if extra is not None else None
    gradient = _random(shape, 11)

    from yolov9.ops.norm_act_fused import norm_act_fused

    out = norm_act_fused(ys, norms, extra)
    out.backward(gradient)
    expected = norm_act_plain(twin_ys, twins, twin_extra)
    expected.backward(gradient.double())

    pairs = [(out, expected)]
    pairs += [(y.grad, twin.grad) for y, twin in zip(ys, twin_ys, strict=True)]
    for norm, twin in zip(norms, twins, strict=True):
        pairs += [(norm.weight.grad, twin.weight.grad), (norm.bias.grad, twin.bias.grad)]
        pairs += [(norm.running_mean, twin.running_mean), (norm.running_var, twin.running_var)]
    if extra is not None:
        pairs.append((extra.grad, twin_extra.grad))
    assert [_relative(value, reference) < RELATIVE_ERROR for value, reference in pairs] == [True] * len(pairs)


@pytest.mark.parametrize(("columns", "block"), WIDTHS.items())
def test_blocks_of_columns_leave_few_lanes_without_work(columns: int, block: int) -> None:
    from yolov9.ops.norm_act_triton import tile_shape

    assert tile_shape(columns, 4096) == (4096 // block, block)


def test_large_sums_have_two_programs_for_each_multiprocessor() -> None:
    from yolov9.ops.norm_act_triton import PROGRAMS_PER_LARGE_SUM, PROGRAMS_PER_SUM, sum_launch

    assert PROGRAMS_PER_SUM < sum_launch(64 * 80 * 80, 64).splits <= PROGRAMS_PER_LARGE_SUM
    assert sum_launch(16 * 80 * 80, 64).splits <= PROGRAMS_PER_SUM


@pytest.mark.parametrize("branches", [1, 2])
def test_many_partial_results_are_added_up_in_several_rounds(monkeypatch: pytest.MonkeyPatch, branches: int) -> None:
    from yolov9.ops import norm_act_triton as kernels

    monkeypatch.setattr(kernels, "SUM_TILE_ELEMENTS", 512)
    monkeypatch.setattr(kernels, "TILES_PER_PROGRAM", 1)
    monkeypatch.setattr(kernels, "LAST_ELEMENTS", 64)
    shape = (2, 48, 17, 19)
    assert kernels.sum_launch(2 * 17 * 19, 48).splits == 21
    test_fused_norm_act_equals_the_float64_twin(shape, branches, residual=False)


def test_a_channel_slice_as_gradient_gives_the_same_as_its_copy() -> None:
    from yolov9.ops.norm_act_fused import norm_act_fused

    y = _random((2, 64, 24, 24), 1)
    wide = _random((2, 160, 24, 24), 2)
    results = []
    for gradient in (wide[:, 32:96], wide[:, 32:96].clone(memory_format=torch.channels_last)):
        leaf = y.detach().clone(memory_format=torch.channels_last).requires_grad_()
        norm_act_fused([leaf], [_norm(64, 3)]).backward(gradient)
        results.append(leaf.grad)
    assert torch.equal(*results)


@pytest.mark.parametrize("shape", SHAPES)
def test_fused_average_pool_equals_the_float64_twin(shape: tuple[int, ...]) -> None:
    from yolov9.ops.average_pool_triton import average_pool_fused

    x = _random(shape, 5).requires_grad_()
    twin = x.detach().double().requires_grad_()
    out, expected = average_pool_fused(x), F.avg_pool2d(twin, 2, 1)
    gradient = _random(tuple(expected.shape), 6)
    out.backward(gradient)
    expected.backward(gradient.double())
    assert _relative(out, expected) < RELATIVE_ERROR
    assert _relative(x.grad, twin.grad) < RELATIVE_ERROR


class _Block(nn.Module):
    """Two units and a residual one, joined without a copy, as the aggregation blocks do it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList(nn.Conv2d(c, n, k, padding=k // 2, bias=False) for c, n, k in UNITS)
        self.norms = nn.ModuleList(_norm(n, seed) for seed, (_, n, _) in enumerate(UNITS))
        self.last = nn.Conv2d(48, 8, 1, bias=False)
        self.to(DEVICE, memory_format=torch.channels_last)

    def forward(self, x: torch.Tensor, fused: bool) -> torch.Tensor:
        if fused:
            from yolov9.ops.norm_act_fused import norm_act_fused as norm_act
        else:
            norm_act = norm_act_plain
        join = Join(48)
        half = norm_act([self.convs[0](x)], [self.norms[0]], join=join, dense_from=8)
        inner = norm_act([self.convs[1](half)], [self.norms[1]], join=join)
        norm_act([self.convs[2](inner)], [self.norms[2]], residual=inner, join=join, dense_from=None)
        return self.last(join.result())


UNITS = ((8, 16, 1), (8, 16, 3), (16, 16, 3))


class _Neck(nn.Module):
    """What follows a block: average pooling, enlarging, joining, each before a convolution that keeps its input."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.convs = nn.ModuleList(nn.Conv2d(c, 8, 3, padding=1, bias=False) for c in (8, 8, 8, 16))
        self.norm = _norm(8, 5)
        self.to(DEVICE, memory_format=torch.channels_last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from yolov9.ops.average_pool_triton import average_pool_fused
        from yolov9.ops.concatenate_triton import concatenate_fused
        from yolov9.ops.norm_act_fused import norm_act_fused
        from yolov9.ops.resize_triton import enlarge_fused

        unit = norm_act_fused([self.convs[0](x)], [self.norm])
        wide = enlarge_fused(unit, 2)
        both = concatenate_fused([wide, unit])
        return self.convs[1](average_pool_fused(unit)).sum() + self.convs[2](wide).sum() + self.convs[3](both).sum()


def _neck_gradients(recompute: bool) -> list[torch.Tensor]:
    neck = _Neck()
    for parameter in neck.parameters():
        parameter.grad = torch.zeros_like(parameter)
    x = _random((2, 8, 12, 10), 3).float().requires_grad_()
    context = recompute_activations(least_bytes=0) if recompute else torch.enable_grad()
    with torch.autocast(DEVICE, dtype=DTYPE, enabled=not INTERPRETED), context:
        out = neck(x)
    out.float().square().backward()
    return [x.grad, *(p.grad for p in neck.parameters())]


def test_pooled_enlarged_and_joined_activations_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from yolov9.ops import average_pool_triton, concatenate_triton, resize_triton

    made = []

    def counted(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def call(*args: object, **kwargs: object) -> torch.Tensor:
            made.append(function.__name__)
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(average_pool_triton, "_pool", counted(average_pool_triton._pool))
    monkeypatch.setattr(resize_triton, "_enlarge", counted(resize_triton._enlarge))
    monkeypatch.setattr(concatenate_triton, "_filled", counted(concatenate_triton._filled))
    kept = _neck_gradients(recompute=False)
    assert sorted(made) == ["_enlarge", "_filled", "_pool", "_pool"]  # _pool is also its own backward pass
    made.clear()
    recomputed = _neck_gradients(recompute=True)
    # Each once more, also the one that both a convolution and the concatenation ask for.
    assert sorted(made) == ["_enlarge", "_enlarge", "_filled", "_filled", "_pool", "_pool", "_pool"]
    assert all(torch.equal(a, b) for a, b in zip(kept, recomputed, strict=True))


@pytest.mark.parametrize(("least_bytes", "again"), [(0, True), (10**6, False)])
def test_small_activations_are_kept(monkeypatch: pytest.MonkeyPatch, least_bytes: int, again: bool) -> None:
    from yolov9.ops import average_pool_triton

    neck, made = _Neck(), []
    pool = average_pool_triton._pool
    monkeypatch.setattr(
        average_pool_triton, "_pool", lambda *args, **kwargs: (made.append(1), pool(*args, **kwargs))[1]
    )
    with torch.autocast(DEVICE, dtype=DTYPE, enabled=not INTERPRETED), recompute_activations(least_bytes):
        out = neck(_random((2, 8, 12, 10), 3).float().requires_grad_())
    out.float().backward()
    assert (len(made) == 3) is again


def _gradients(fused: bool, recompute: bool = False) -> list[torch.Tensor]:
    block = _Block()
    for parameter in block.parameters():
        parameter.grad = torch.zeros_like(parameter)
    x = _random((2, 8, 11, 9), 3).float().requires_grad_()
    context = recompute_activations(least_bytes=0) if recompute else torch.enable_grad()
    with torch.autocast(DEVICE, dtype=DTYPE, enabled=not INTERPRETED), context:
        out = block(x, fused)
    out.float().square().sum().backward()
    return [x.grad, *(p.grad for p in block.parameters())]


def test_a_joined_block_has_the_gradients_of_its_plain_twin() -> None:
    errors = [_relative(a, b.double()) for a, b in zip(_gradients(True), _gradients(False), strict=True)]
    assert max(errors) < (1e-5 if INTERPRETED else 2e-2)


def test_recomputed_activations_change_no_bit_of_the_gradients() -> None:
    kept, recomputed = _gradients(True), _gradients(True, recompute=True)
    assert all(torch.equal(a, b) for a, b in zip(kept, recomputed, strict=True))


@pytest.mark.parametrize("shape", SHAPES[1:3])
@pytest.mark.parametrize(("kernel", "stride"), [(5, 1), (3, 2)])
def test_fused_max_pool_equals_the_plain_twin(shape: tuple[int, ...], kernel: int, stride: int) -> None:
    """Values are rounded to few levels, so that equal neighbours occur and the first one has to win."""
    from yolov9.ops.max_pool_triton import max_pool_fused

    x = (_random(shape, 5) * 4).round().contiguous(memory_format=torch.channels_last).requires_grad_()
    twin = x.detach().double().requires_grad_()
    out, expected = max_pool_fused(x, kernel, stride), F.max_pool2d(twin, kernel, stride, kernel // 2)
    gradient = _random(tuple(expected.shape), 6)
    out.backward(gradient)
    expected.backward(gradient.double())
    assert torch.equal(out.double(), expected)
    assert _relative(x.grad, twin.grad) < RELATIVE_ERROR


def test_fused_max_pools_in_a_row_fill_a_join() -> None:
    from yolov9.ops.max_pool_triton import max_pool_fused

    x = _random((2, 32, 9, 11), 1).requires_grad_()
    join = Join(96)
    first = max_pool_fused(x, 5, 1, join)
    second = max_pool_fused(first, 5, 1, join)
    max_pool_fused(second, 5, 1, join)
    out = join.result()
    gradient = _random((2, 96, 9, 11), 2)
    out.backward(gradient)
    twin = x.detach().double().requires_grad_()
    stages = [twin]
    for _ in range(3):
        stages.append(F.max_pool2d(stages[-1], 5, 1, 2))
    expected = torch.cat(stages[1:], 1)
    expected.backward(gradient.double())
    assert torch.equal(out.double(), expected)
    assert _relative(x.grad, twin.grad) < RELATIVE_ERROR


@pytest.mark.parametrize(
    ("shape", "factor"), [*((shape, factor) for shape in SHAPES for factor in (2, 4)), ((2, 24, 3, 5), 16)]
)
def test_fused_enlarging_equals_the_plain_twin(shape: tuple[int, ...], factor: int) -> None:
    from yolov9.ops.resize_triton import enlarge_fused

    x = _random(shape, 5).requires_grad_()
    twin = x.detach().double().requires_grad_()
    out, expected = enlarge_fused(x, factor), F.interpolate(twin, scale_factor=factor, mode="nearest")
    gradient = _random(tuple(expected.shape), 6)
    out.backward(gradient)
    expected.backward(gradient.double())
    assert torch.equal(out.double(), expected)
    assert _relative(x.grad, twin.grad) < RELATIVE_ERROR


@pytest.mark.parametrize("shape", SHAPES)
def test_fused_concatenation_equals_the_plain_twin(shape: tuple[int, ...]) -> None:
    from yolov9.ops.concatenate import concatenate
    from yolov9.ops.concatenate_triton import concatenate_fused

    batch, channels, height, width = shape
    small, wide = _random(shape, 3), _random((batch, 2 * channels, 2 * height, 2 * width), 4)
    gradient = _random((batch, 2 * channels, 2 * height, 2 * width), 5)
    results = []
    for function in (concatenate_fused, concatenate):
        leaves = [tensor.detach().requires_grad_() for tensor in (small, wide)]
        # The second part is a slice of wider rows.
        with plain_operations():
            out = function([leaves[0], leaves[1][:, channels:]])
        out.backward(gradient)
        results.append([out, *(leaf.grad for leaf in leaves)])
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][2], results[1][2])
    assert _relative(results[0][1], results[1][1].double()) < RELATIVE_ERROR


@pytest.mark.parametrize("shape", SHAPES)
def test_fused_column_sums_are_added_to_what_is_there(shape: tuple[int, ...]) -> None:
    from yolov9.ops.column_sums_triton import add_column_sums_fused

    x = _random(shape, 5, shift=0.5)
    total = torch.full((shape[1],), 3.0, device=DEVICE)
    add_column_sums_fused(x, total)
    assert _relative(total, 3.0 + x.double().sum((0, 2, 3))) < 1e-5
