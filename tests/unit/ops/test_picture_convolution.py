"""Which convolutions have kernels of their own."""

import torch

from yolov9.ops.picture_convolution import picture_convolution_applies


def test_on_the_cpu_no_convolution_does() -> None:
    x = torch.zeros(1, 3, 8, 8, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
    weight = torch.zeros(16, 3, 3, 3, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
    assert not picture_convolution_applies(x, weight, None, (2, 2), (1, 1), 1)
