"""Size of a model: parameters, and floating-point operations of its convolutions."""

from typing import Any

import torch
from torch import Tensor, nn

from yolov9.model.build import build_graph
from yolov9.model.detector import DetectionModel
from yolov9.model.fold import fuse
from yolov9.model.head import BinExpectation

OPERATIONS_PER_MAC = 2
"""A multiplication and an addition."""
GIGA = 1e9


def count_parameters(model: nn.Module) -> int:
    """Parameters, frozen ones included."""
    return sum(p.numel() for p in model.parameters())


def count_gflops(model: DetectionModel, image_size: int = 640, *, folded: bool = False) -> float:
    """10^9 operations of all convolutions for one square picture, the auxiliary branch of a dual model included.

    The expectation over the distance bins counts as the 1x1 convolution that it is on paper. Computed from shapes
    alone; nothing runs on the model's device.

    Args:
        model: the model, which is not touched.
        image_size: side of the picture in pixels, a multiple of the coarsest stride.
        folded: count the model as it is after `fuse`.
    """
    total = 0

    def count(module: nn.Module, _inputs: Any, output: Tensor) -> None:
        nonlocal total
        conv = module.conv if isinstance(module, BinExpectation) else module
        assert isinstance(conv, nn.Conv2d)
        total += OPERATIONS_PER_MAC * output.numel() * conv.weight[0].numel()

    with torch.device("meta"), torch.no_grad():
        twin = build_graph(model.spec).eval()
        twin = fuse(twin) if folded else twin
        for module in twin.modules():
            if isinstance(module, (nn.Conv2d, BinExpectation)):
                module.register_forward_hook(count)
        twin(torch.zeros(1, 3, image_size, image_size), with_aux=twin.is_dual)
    return total / GIGA
