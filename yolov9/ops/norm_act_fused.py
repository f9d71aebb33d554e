"""`norm_act` through the kernels of `norm_act_triton`: what autograd sees of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from yolov9.ops.join import Join
from yolov9.ops.norm_act_triton import (
    activate_kernel,
    gradient_kernel,
    gradient_sums_kernel,
    launch,
    statistics_kernel,
    sum_launch,
)
from yolov9.ops.recompute import recipe_of, remember
from yolov9.ops.rows import as_rows, empty_rows

COLUMN_BLOCKS = 1024
"""Counters of finished programs, one for each block of columns: 16,384 channels in blocks of 16."""


@dataclass(frozen=True)
class _Branch:
    """One convolution output with all that normalises it; columns are float32 vectors of length C."""

    y: Tensor
    mean: Tensor
    rstd: Tensor
    gamma: Tensor
    beta: Tensor

    def arguments(self) -> tuple[Tensor, ...]:
        return self.y, self.mean, self.rstd, self.gamma, self.beta


def norm_act_fused(
    branches: Sequence[Tensor],
    norms: Sequence[nn.BatchNorm2d],
    residual: Tensor | None = None,
    join: Join | None = None,
    dense_from: int | None = 0,
) -> Tensor:
    """The fused form of `yolov9.ops.norm_act.norm_act`; arguments and result as there.

    The branches are channels-last, the normalisations are in training mode with float32 parameters and buffers.
    Gradients of scales and shifts are added to `.grad` in place where it exists, and go through autograd elsewhere.
    """
    statistics = [_statistics(y.detach(), norm) for y, norm in zip(branches, norms, strict=True)]
    flat = [tensor for y, norm in zip(branches, norms, strict=True) for tensor in (y, norm.weight, norm.bias)]
    slot = join.reserve(branches[0], branches[0].shape[1]) if join is not None else None
    dense, joined = _NormAct.apply(residual, statistics, [slot], dense_from, *flat)
    kept = [
        _Branch(y.detach(), *stats, norm.weight.detach(), norm.bias.detach())
        for y, stats, norm in zip(branches, statistics, norms, strict=True)
    ]
    rest = recipe_of(residual) if residual is not None else None
    if join is not None:
        join.put_reserved(joined, lambda part: _activate(kept, rest() if rest else None, part, None))
    if dense is not None:
        remember(dense, partial(_dense_again, kept, rest, dense_from))
    result: Tensor = joined if dense is None else dense
    return result


def _dense_again(branches: Sequence[_Branch], residual: Callable[[], Tensor] | None, dense_from: int | None) -> Tensor:
    dense = _activate(branches, residual() if residual else None, None, dense_from)
    assert dense is not None
    return dense


def _activate(
    branches: Sequence[_Branch], residual: Tensor | None, joined: Tensor | None, dense_from: int | None
) -> Tensor | None:
    """Writes the result to `joined` when there is one, and returns the columns from `dense_from` on in new memory."""
    y = branches[0].y
    columns = y.shape[1]
    rows = y.numel() // columns
    dense = None if dense_from is None else empty_rows(y, columns - dense_from)
    source, residual_stride = (y, columns) if residual is None else as_rows(residual)
    slice_, joined_stride = (y, columns) if joined is None else as_rows(joined)
    grid, options = launch(rows, columns)
    activate_kernel[grid](
        y if dense is None else dense, slice_, source, *branches[0].arguments(), *branches[-1].arguments(),
        rows, columns, dense_from or 0, joined_stride, residual_stride,
        BRANCHES=len(branches), HAS_RESIDUAL=residual is not None, HAS_DENSE=dense is not None,
        HAS_JOINED=joined is not None, **options,
    )  # fmt: skip
    return dense


def _statistics(y: Tensor, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Returns mean and 1/sqrt(variance + eps) of each channel and updates the running statistics."""
    columns = y.shape[1]
    rows = y.numel() // columns
    how = sum_launch(rows, columns)
    part = torch.empty((2, how.splits, columns), device=y.device, dtype=torch.float32)
    out = torch.empty((2, columns), device=y.device, dtype=torch.float32)
    statistics_kernel[how.grid](
        y, part[0], part[1], out[0], out[1], norm.running_mean, norm.running_var,
        norm.num_batches_tracked, counters(y.device),
        rows, columns, how.splits, how.rows_per_split, norm.momentum, norm.eps, **how.options,
    )  # fmt: skip
    return out[0], out[1]


def counters(device: torch.device) -> Tensor:
    """Zeros that every reduction leaves as zeros; reductions that share them must run one after the other."""
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    return _counters_of_stream(device, stream)


@cache
def _counters_of_stream(device: torch.device, stream: int) -> Tensor:
    return torch.zeros(COLUMN_BLOCKS, dtype=torch.int32, device=device)


class _NormAct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        residual: Tensor | None,
        statistics: Sequence[tuple[Tensor, Tensor]],
        slot: list[Tensor | None],
        dense_from: int | None,
        *flat: Tensor,
    ) -> tuple[Tensor | None, Tensor | None]:
        parts = zip(flat[0::3], statistics, flat[1::3], flat[2::3], strict=True)
        branches = [_Branch(y, *stats, gamma, beta) for y, stats, gamma, beta in parts]
        ctx.save_for_backward(*(tensor for branch in branches for tensor in branch.arguments()))
        ctx.set_materialize_grads(False)
        ctx.has_residual, ctx.dense_from = residual is not None, dense_from or 0
        ctx.parameters = [(branch.gamma, branch.beta) for branch in branches]
        return _activate(branches, residual, slot[0], dense_from), slot[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        dense, joined = gradients
        if dense is None and joined is None:
            return (None,) * (4 + 3 * len(ctx.parameters))
        saved = ctx.saved_tensors
        branches = [_Branch(*saved[start : start + 5]) for start in range(0, len(saved), 5)]
        in_place = all(p.grad is not None for pair in ctx.parameters for p in pair)
        targets = [p.grad if in_place else p for pair in ctx.parameters for p in pair]
        dys, sums = _gradients(branches, dense, joined, ctx.dense_from, targets, in_place)
        flat: list[Tensor | None] = [_add(dense, joined) if ctx.has_residual else None, None, None, None]
        for index, dy in enumerate(dys):
            flat += [dy, None, None] if in_place else [dy, sums[index + 1], sums[0]]
        return tuple(flat)


def _add(dense: Tensor | None, joined: Tensor | None) -> Tensor | None:
    return dense + joined if dense is not None and joined is not None else (joined if dense is None else dense)


def _gradients(
    branches: Sequence[_Branch],
    dense: Tensor | None,
    joined: Tensor | None,
    dense_from: int,
    parameter_gradients: Sequence[Tensor],
    in_place: bool,
) -> tuple[list[Tensor], Tensor]:
    """Gradients of the convolution outputs, and column sums of g and g * xhat of each branch."""
    y = branches[0].y
    columns = y.shape[1]
    rows = y.numel() // columns
    g_dense, dense_stride = (y, columns) if dense is None else as_rows(dense)
    g_joined, joined_stride = (y, columns) if joined is None else as_rows(joined)
    both = (*branches[0].arguments(), *branches[-1].arguments())
    targets = (*parameter_gradients[:2], *parameter_gradients[-2:])
    kind = {"BRANCHES": len(branches), "HAS_JOINED": joined is not None, "HAS_DENSE": dense is not None}
    strides = (joined_stride, dense_stride, dense_from)

    how = sum_launch(rows, columns)
    part = torch.empty((how.splits, len(branches) + 1, columns), device=y.device, dtype=torch.float32)
    sums = torch.empty((len(branches) + 1, columns), device=y.device, dtype=torch.float32)
    gradient_sums_kernel[how.grid](
        part, sums, counters(y.device), g_joined, g_dense, *targets, *both,
        rows, columns, how.splits, how.rows_per_split, *strides, **kind, ACCUMULATE=in_place, **how.options,
    )  # fmt: skip
    outputs = [torch.empty_like(branch.y, memory_format=torch.channels_last) for branch in branches]
    grid, options = launch(rows, columns)
    gradient_kernel[grid](
        outputs[0], outputs[-1], sums, g_joined, g_dense, *both, rows, columns, *strides,
        **kind, **options,
    )  # fmt: skip
    return outputs, sums
