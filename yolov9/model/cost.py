"""Size of a model: parameters, and floating-point operations of its convolutions."""

from torch import nn

from yolov9.model.conv import RepConvUnit
from yolov9.model.detector import DetectionModel

OPERATIONS_PER_MAC = 2
"""A multiplication and an addition."""
BOX_SIDES = 4
GIGA = 1e9


def count_parameters(model: nn.Module) -> int:
    """Parameters, frozen ones included."""
    return sum(p.numel() for p in model.parameters())


def count_gflops(model: DetectionModel, image_size: int = 640, *, folded: bool = False) -> float:
    """10^9 operations of all convolutions for one square picture, the auxiliary branch of a dual model included.

    The expectation over the distance bins counts as the 1x1 convolution that it is on paper. Nothing runs: every
    convolution of a layer works at the size of the layer's output.

    Args:
        model: the model, which is not touched.
        image_size: side of the picture in pixels, a multiple of the coarsest stride.
        folded: count the model as it is after `fuse`.
    """
    total = 0.0
    for layer, stride in zip(model.model[:-1], model.row_strides, strict=True):
        total += _multiplications(layer, folded) * float(image_size / stride) ** 2
    head = model.head
    for part in head.children():
        for level, pixels in enumerate(head.strides):
            branch = part[level] if isinstance(part, nn.ModuleList) else part
            repeats = 1 if isinstance(part, nn.ModuleList) else BOX_SIDES
            total += repeats * _multiplications(branch, folded) * (image_size / pixels) ** 2
    return OPERATIONS_PER_MAC * total / GIGA


def _multiplications(layer: nn.Module, folded: bool) -> int:
    """Multiplications for one cell of the output; the 1x1 branch vanishes in the 3x3 one when folded."""
    modules = list(layer.modules())
    total = sum(m.weight.numel() for m in modules if isinstance(m, nn.Conv2d))
    for module in modules:
        if folded and isinstance(module, RepConvUnit) and module.conv2 is not None:
            total -= module.conv2.conv.weight.numel()
    return total
