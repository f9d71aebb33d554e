"""CUDA kernel (Triton) for `predicted_boxes`: one pass over the half-precision logits of all anchors."""

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS_PER_TILE = 128
"""Distributions of one program: 2,048 logits at 16 bins."""


@triton.jit(do_not_specialize=["rows", "anchor_count"])
def _boxes_kernel(
    boxes, sides, points, strides, rows, anchor_count, bins, BLOCK_R: tl.constexpr, BLOCK_B: tl.constexpr
):  # fmt: skip
    """A row is one side of one anchor: left, top, right, bottom in turn."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    bin_ = tl.arange(0, BLOCK_B)[None, :]
    in_rows = row < rows
    value = tl.load(sides + row[:, None] * bins + bin_, mask=in_rows[:, None] & (bin_ < bins), other=0.0)
    value = tl.where(bin_ < bins, value.to(tl.float32), float("-inf"))
    share = tl.exp(value - tl.max(value, 1)[:, None])
    distance = tl.sum(share * bin_.to(tl.float32), 1) / tl.sum(share, 1)
    side, anchor = row % 4, row // 4 % anchor_count
    point = tl.load(points + anchor * 2 + side % 2, mask=in_rows, other=0.0)
    length = distance * tl.load(strides + anchor, mask=in_rows, other=0.0)
    tl.store(boxes + row, tl.where(side < 2, point - length, point + length), mask=in_rows)


def predicted_boxes_fused(sides: Tensor, points: Tensor, strides: Tensor) -> Tensor:
    """The fused form of `yolov9.loss.terms.predicted_boxes` for contiguous tensors."""
    pictures, anchor_count, width = sides.shape
    boxes = torch.empty((pictures, anchor_count, 4), dtype=torch.float32, device=sides.device)
    rows, bins = boxes.numel(), width // 4
    _boxes_kernel[(triton.cdiv(rows, ROWS_PER_TILE),)](
        boxes, sides, points, strides, rows, anchor_count, bins,
        BLOCK_R=ROWS_PER_TILE, BLOCK_B=triton.next_power_of_2(bins),
    )  # fmt: skip
    return boxes
