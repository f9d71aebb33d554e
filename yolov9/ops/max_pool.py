"""Maximum over a square neighbourhood, as in the pyramid pooling and one of the down-sampling blocks."""

import torch
from torch import Tensor
from torch.nn import functional as F

from yolov9.ops.join import Join
from yolov9.ops.plain import kernels_take
from yolov9.ops.rows import row_stride


def max_pool(x: Tensor, kernel: int, stride: int = 1, join: Join | None = None) -> Tensor:
    """Takes the maximum of each `kernel` x `kernel` neighbourhood; the padding is half of it, rounded down.

    Args:
        x: B x C x H x W.
        kernel: side of the neighbourhood; odd.
        stride: step of the neighbourhood.
        join: a concatenation that the result becomes the next part of.

    Returns:
        B x C x ceil(H / stride) x ceil(W / stride), same dtype.
    """
    if kernels_take(x) and row_stride(x) is not None and x.dtype in (torch.bfloat16, torch.float16):
        from yolov9.ops.max_pool_triton import max_pool_fused

        return max_pool_fused(x, kernel, stride, join)
    result = F.max_pool2d(x, kernel, stride, kernel // 2)
    if join is not None:
        join.put(result)
    return result
