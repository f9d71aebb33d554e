"""Resizing by nearest neighbour."""

import torch
from torch import Tensor
from torch.nn import functional as F

from yolov9.ops.plain import kernels_take
from yolov9.ops.rows import row_stride


def resize_nearest(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Resizes B x C x H x W to B x C x size by nearest neighbour, in the dtype of `x`.

    Autocast would do this in float32, although values are only copied, and everything after it would follow.
    """
    factor = size[0] // x.shape[2]
    whole = factor > 0 and size == (factor * x.shape[2], factor * x.shape[3])
    if whole and fused_applies(x):
        from yolov9.ops.resize_triton import enlarge_fused

        return enlarge_fused(x, factor)
    with torch.autocast(x.device.type, enabled=False):
        return F.interpolate(x, size=size, mode="nearest")


def fused_applies(x: Tensor) -> bool:
    """Tells whether kernels of our own enlarge a tensor."""
    return kernels_take(x) and row_stride(x) is not None
