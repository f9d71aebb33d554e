"""CUDA kernel (Triton) for `add_column_sums`: PyTorch's own reduction of channels-last maps is several times slower."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from yolov9.ops.norm_act_fused import counters
from yolov9.ops.norm_act_triton import LAST_UNROLL, is_last, sum_launch
from yolov9.ops.rows import as_rows


@triton.jit(do_not_specialize=["rows", "splits", "rows_per_split"])
def _sums_kernel(
    x, part, total, counters, rows, columns, stride, splits, rows_per_split,
    STAGES: tl.constexpr, LAST_BLOCK_P: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
) -> None:  # fmt: skip
    block, split = tl.program_id(0), tl.program_id(1)
    offs_c = block * BLOCK_C + tl.arange(0, BLOCK_C)
    in_c = offs_c < columns
    first = split * rows_per_split
    last = tl.minimum(first + rows_per_split, rows)
    sums = tl.zeros((BLOCK_P, BLOCK_C), tl.float32)
    for row in tl.range(first, last, BLOCK_P, num_stages=STAGES):
        offs_p = row + tl.arange(0, BLOCK_P)
        inside = (offs_p < last)[:, None] & in_c[None, :]
        at = offs_p.to(tl.int64)[:, None] * stride + offs_c[None, :]
        sums += tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(part + split * columns + offs_c, tl.sum(sums, 0), mask=in_c)
    if is_last(counters + block, splits):
        all_sums = tl.zeros((LAST_BLOCK_P, BLOCK_C), tl.float32)
        for start in tl.range(0, splits, LAST_BLOCK_P, loop_unroll_factor=LAST_UNROLL):
            offs_s = start + tl.arange(0, LAST_BLOCK_P)
            inside = (offs_s < splits)[:, None] & in_c[None, :]
            at = offs_s[:, None] * columns + offs_c[None, :]
            all_sums += tl.load(part + at, mask=inside, other=0.0, cache_modifier=".cg")
        before = tl.load(total + offs_c, mask=in_c, other=0.0)
        tl.store(total + offs_c, before + tl.sum(all_sums, 0), mask=in_c)


def add_column_sums_fused(x: Tensor, total: Tensor) -> None:
    """The fused form of `yolov9.ops.column_sums.add_column_sums`."""
    x, stride = as_rows(x)
    columns = x.shape[1]
    rows = x.numel() // columns
    how = sum_launch(rows, columns)
    part = torch.empty((how.splits, columns), dtype=torch.float32, device=x.device)
    _sums_kernel[how.grid](
        x, part, total, counters(x.device), rows, columns, stride, how.splits, how.rows_per_split, **how.options
    )
