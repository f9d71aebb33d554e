"""Batch normalisation, sum of branches, SiLU and residual as one operation.

    z = silu(sum_k bn_k(y_k)) + residual

One branch is the ordinary convolution unit, two are the re-parameterisable convolution, and the residual is that of a
bottleneck. `norm_act_plain` is the specification and runs everywhere; on a CUDA card with Triton the fused kernels of
`norm_act_triton` compute the same with few passes over memory and keep nothing but the convolution outputs.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from yolov9.ops.join import Join
from yolov9.ops.plain import kernels_take


def norm_act(
    branches: Sequence[Tensor],
    norms: Sequence[nn.BatchNorm2d],
    residual: Tensor | None = None,
    join: Join | None = None,
    dense_from: int | None = 0,
) -> Tensor:
    """Normalises each branch, adds them up, applies SiLU and adds the residual.

    Args:
        branches: one or two convolution outputs, B x C x H x W.
        norms: the batch normalisation of each branch; running statistics are updated in training mode.
        residual: added after the activation, B x C x H x W.
        join: a concatenation that the result is put into as its next part.
        dense_from: first channel of what is returned; None when the caller needs the part in `join` only.

    Returns:
        B x (C - dense_from) x H x W in the dtype of the branches.
    """
    if _fused_applies(branches, norms):
        from yolov9.ops.norm_act_fused import norm_act_fused

        return norm_act_fused(branches, norms, residual, join, dense_from)
    return norm_act_plain(branches, norms, residual, join, dense_from)


def norm_act_plain(
    branches: Sequence[Tensor],
    norms: Sequence[nn.BatchNorm2d],
    residual: Tensor | None = None,
    join: Join | None = None,
    dense_from: int | None = 0,
) -> Tensor:
    """The same in plain PyTorch; arguments and result as in `norm_act`."""
    total = norms[0](branches[0])
    for branch, norm in zip(branches[1:], norms[1:], strict=True):
        total = total + norm(branch)
    activated = F.silu(total)
    result = activated if residual is None else residual + activated
    if join is not None:
        join.put(result)
    return result[:, dense_from:] if dense_from else result


def _fused_applies(branches: Sequence[Tensor], norms: Sequence[nn.BatchNorm2d]) -> bool:
    first = branches[0]
    return (
        kernels_take(first)
        and all(type(norm) is nn.BatchNorm2d and norm.training for norm in norms)
        and first.dtype in (torch.bfloat16, torch.float16)
        and all(branch.is_contiguous(memory_format=torch.channels_last) for branch in branches)
    )
