"""Average of 2 x 2 neighbouring pixels at stride 1, the first step of the down-sampling blocks."""

import torch
from torch import Tensor
from torch.nn import functional as F

from yolov9.ops.plain import kernels_take


def average_pool_2x2(x: Tensor) -> Tensor:
    """Averages each 2 x 2 neighbourhood, stride 1, no padding.

    Args:
        x: B x C x H x W.

    Returns:
        B x C x (H - 1) x (W - 1), same dtype.
    """
    if kernels_take(x) and x.is_contiguous(memory_format=torch.channels_last):
        from yolov9.ops.average_pool_triton import average_pool_fused

        return average_pool_fused(x)
    return F.avg_pool2d(x, kernel_size=2, stride=1)
