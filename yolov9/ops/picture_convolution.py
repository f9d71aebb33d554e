"""The first convolution of a network: few input channels, no gradient of the input.

A general convolution is made for many channels. For three of them cuDNN takes several times as long as reading and
writing memory does, above all for the weight gradient.
"""

import torch
from torch import Tensor

from yolov9.ops.plain import capability_of, kernels_take

MOST_CHANNELS = 4
"""Input channels at the most."""
MATRIX_CAPABILITY = (8, 0)
"""Triton 3.3 compiles products of matrices in half precision from this compute capability on."""
LONGEST_PATCH = 64
"""Values that one output pixel sees, at the most; each thread holds as many."""


def picture_convolution_applies(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, int], padding: tuple[int, int], groups: int
) -> bool:
    """Tells whether the functions below compute this convolution: few channels in, half precision, channels-last."""
    kernel = weight.shape[2]
    return (
        kernels_take(x)
        and capability_of(x) >= MATRIX_CAPABILITY
        and not x.requires_grad
        and bias is None
        and groups == 1
        and x.shape[1] <= MOST_CHANNELS
        and kernel == weight.shape[3]
        and kernel % 2 == 1
        and weight[0].numel() <= LONGEST_PATCH
        and tuple(stride) in ((1, 1), (2, 2))
        and tuple(padding) == (kernel // 2, kernel // 2)
        and x.dtype in (torch.bfloat16, torch.float16)
        and x.is_contiguous(memory_format=torch.channels_last)
        and weight.is_contiguous(memory_format=torch.channels_last)
    )


def convolve_picture(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Convolves B x C x H x W with c_out x C x K x K; the padding is K // 2."""
    from yolov9.ops.picture_convolution_triton import convolve_picture_fused

    return convolve_picture_fused(x, weight, stride)


def add_picture_gradient(x: Tensor, gradient: Tensor, weight: Tensor, stride: int) -> None:
    """Adds to `weight.grad`, float32 and channels-last, what the gradient of the result means for the weight."""
    from yolov9.ops.picture_convolution_triton import add_weight_gradient_fused

    assert weight.grad is not None, "parameters with a compute copy have their gradient from the start"
    add_weight_gradient_fused(x, gradient.contiguous(memory_format=torch.channels_last), weight.grad, stride)
