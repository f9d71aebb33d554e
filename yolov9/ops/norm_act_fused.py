"""`norm_act` through the kernels of `norm_act_triton`: what autograd sees of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from yolov9.ops.fan_out import GradientParts
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
from yolov9.ops.stream import current_stream

COLUMN_BLOCKS = 1024
"""Counters of finished programs, one for each block of columns: 16,384 channels in blocks of 16."""
MOST_PARTS = 3
"""Parts of the gradient of a dense result that the kernels add up: what a bottleneck's input gets back."""


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
    return _counters_of_stream(device, current_stream(device))


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
        ctx.parts = GradientParts(flat[0])
        return _activate(branches, residual, slot[0], dense_from), slot[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        dense, joined = gradients
        if dense is None and joined is None:
            return (None,) * (4 + 3 * len(ctx.parameters))
        parts = ctx.parts.take() if dense is None else [dense, *ctx.parts.take()]
        incoming = _Incoming(joined, _at_most(MOST_PARTS, parts), ctx.dense_from)
        saved = ctx.saved_tensors
        branches = [_Branch(*saved[start : start + 5]) for start in range(0, len(saved), 5)]
        in_place = all(p.grad is not None for pair in ctx.parameters for p in pair)
        targets = [p.grad if in_place else p for pair in ctx.parameters for p in pair]
        dys, sums, total = _gradients(branches, incoming, targets, in_place, total_wanted=ctx.has_residual)
        flat: list[Tensor | None] = [total if ctx.has_residual else None, None, None, None]
        for index, dy in enumerate(dys):
            flat += [dy, None, None] if in_place else [dy, sums[index + 1], sums[0]]
        return tuple(flat)


@dataclass(frozen=True)
class _Incoming:
    """What came back for a result: for its slice in a concatenation, and for its columns from `dense_from` on."""

    joined: Tensor | None
    dense: Sequence[Tensor]
    """Up to MOST_PARTS parts of a sum."""
    dense_from: int

    def only(self) -> Tensor | None:
        """Returns the gradient where it is one tensor."""
        parts = [part for part in (self.joined, *self.dense) if part is not None]
        return parts[0] if len(parts) == 1 else None

    def arguments(self, unused: Tensor) -> tuple[list[Tensor], list[int], dict[str, int]]:
        """Tensors, row strides and kind as the kernels take them; `unused` stands for tensors that do not exist."""
        dense = [*self.dense, *(MOST_PARTS - len(self.dense)) * [None]]
        rows = [(unused, 1) if part is None else as_rows(part) for part in (self.joined, *dense)]
        kind = {"HAS_JOINED": self.joined is not None, "DENSE_PARTS": len(self.dense)}
        return [tensor for tensor, _ in rows], [*(stride for _, stride in rows), self.dense_from], kind


def _at_most(count: int, parts: list[Tensor]) -> list[Tensor]:
    """Adds up parts of a sum until no more than `count` are left."""
    return parts if len(parts) <= count else [*parts[: count - 1], torch.stack(parts[count - 1 :]).sum(0)]


def _gradients(
    branches: Sequence[_Branch],
    incoming: _Incoming,
    parameter_gradients: Sequence[Tensor],
    in_place: bool,
    *,
    total_wanted: bool,
) -> tuple[list[Tensor], Tensor, Tensor | None]:
    """Gradients of the convolution outputs, column sums of g and g * xhat of each branch, and the gradient of the
    result, which is None where it is not wanted."""
    y = branches[0].y
    columns = y.shape[1]
    rows = y.numel() // columns
    both = (*branches[0].arguments(), *branches[-1].arguments())
    targets = (*parameter_gradients[:2], *parameter_gradients[-2:])
    # Reading three parts twice takes longer than writing their sum and reading that.
    total = incoming.only()
    writes_total = total is None and (total_wanted or len(incoming.dense) == MOST_PARTS)
    if writes_total:
        total = empty_rows(y, columns)
    how = sum_launch(rows, columns)
    part = torch.empty((how.splits, len(branches) + 1, columns), device=y.device, dtype=torch.float32)
    sums = torch.empty((len(branches) + 1, columns), device=y.device, dtype=torch.float32)
    tensors, strides, kind = incoming.arguments(y)
    gradient_sums_kernel[how.grid](
        part, sums, y if total is None else total, counters(y.device), *tensors, *targets, *both,
        rows, columns, how.splits, how.rows_per_split, *strides,
        BRANCHES=len(branches), HAS_TOTAL=writes_total, ACCUMULATE=in_place, **kind, **how.options,
    )  # fmt: skip
    if total is not None and writes_total:
        tensors, strides, kind = _Incoming(None, [total], 0).arguments(y)
    outputs = [torch.empty_like(branch.y, memory_format=torch.channels_last) for branch in branches]
    grid, options = launch(rows, columns)
    gradient_kernel[grid](
        outputs[0], outputs[-1], sums, *tensors, *both, rows, columns, *strides,
        BRANCHES=len(branches), **kind, **options,
    )  # fmt: skip
    return outputs, sums, total if total_wanted else None
