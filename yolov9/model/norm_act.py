"""The three places where a convolution's output is normalised, activated and added to something.

They are plain PyTorch and the specification of what a faster kernel has to compute: blocks call nothing else, so that
such a kernel is put in here and nowhere else. All tensors are batch x channels x height x width of one floating type.
"""

import torch.nn.functional as F
from torch import Tensor, nn


def _silu(x: Tensor) -> Tensor:
    """SiLU; in place where nothing has to be kept for a backward pass."""
    return F.silu(x, inplace=not x.requires_grad)


def norm_silu(x: Tensor, norm: nn.Module | None) -> Tensor:
    """SiLU of the normalised convolution output `x`; `norm` is None once it is folded into the convolution."""
    return _silu(x if norm is None else norm(x))


def norm_silu_add(x: Tensor, norm: nn.Module | None, residual: Tensor) -> Tensor:
    """`residual` plus SiLU of the normalised convolution output `x` (both of one shape)."""
    return residual + norm_silu(x, norm)


def two_norms_silu(x: Tensor, x_norm: nn.Module, y: Tensor, y_norm: nn.Module) -> Tensor:
    """SiLU of the sum of two convolution outputs, each with its own normalisation."""
    return _silu(x_norm(x) + y_norm(y))
