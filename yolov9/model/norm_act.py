"""The two places where a convolution's output is normalised, activated, added to something and handed on.

Blocks call nothing else, so that the fused kernels of `yolov9.ops.norm_act` serve all of them. All tensors are
batch x channels x height x width of one floating type.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from yolov9.ops.join import Join
from yolov9.ops.norm_act import norm_act


def norm_silu(
    x: Tensor,
    norm: nn.BatchNorm2d | None,
    residual: Tensor | None = None,
    join: Join | None = None,
    dense_from: int | None = 0,
) -> Tensor:
    """SiLU of the normalised convolution output `x`, plus `residual`.

    Args:
        x: convolution output.
        norm: its normalisation; None once it is folded into the convolution.
        residual: added to the result, same shape.
        join: concatenation that the result becomes the next part of.
        dense_from: first channel of what is returned; None when only `join` needs the result.
    """
    if norm is not None:
        return norm_act([x], [norm], residual, join, dense_from)
    activated = F.silu(x, inplace=not x.requires_grad)  # in place where nothing has to be kept for a backward pass
    result = activated if residual is None else residual + activated
    if join is not None:
        join.put(result)
    return result[:, dense_from:] if dense_from else result


def two_norms_silu(x: Tensor, x_norm: nn.BatchNorm2d, y: Tensor, y_norm: nn.BatchNorm2d) -> Tensor:
    """SiLU of the sum of two convolution outputs, each with its own normalisation."""
    return norm_act([x, y], [x_norm, y_norm])
