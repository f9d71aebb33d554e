"""The three places where a convolution's output is normalised, activated and added to something.

Blocks call nothing else, so that the fused kernels of `yolov9.ops.norm_act` serve all of them. All tensors are
batch x channels x height x width of one floating type.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from yolov9.ops.norm_act import norm_act


def norm_silu(x: Tensor, norm: nn.BatchNorm2d | None) -> Tensor:
    """SiLU of the normalised convolution output `x`; `norm` is None once it is folded into the convolution."""
    if norm is None:
        return F.silu(x, inplace=not x.requires_grad)  # in place where nothing has to be kept for a backward pass
    return norm_act([x], [norm])


def norm_silu_add(x: Tensor, norm: nn.BatchNorm2d | None, residual: Tensor) -> Tensor:
    """`residual` plus SiLU of the normalised convolution output `x` (both of one shape)."""
    return residual + norm_silu(x, None) if norm is None else norm_act([x], [norm], residual)


def two_norms_silu(x: Tensor, x_norm: nn.BatchNorm2d, y: Tensor, y_norm: nn.BatchNorm2d) -> Tensor:
    """SiLU of the sum of two convolution outputs, each with its own normalisation."""
    return norm_act([x, y], [x_norm, y_norm])
