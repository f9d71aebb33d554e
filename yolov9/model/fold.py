"""Folding for inference: batch normalisation into its convolution, re-parameterisable branches into one convolution."""

import copy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from yolov9.model.conv import NormedConv, RepConvUnit
from yolov9.model.detector import DetectionModel


def for_inference(model: DetectionModel, device: torch.device, dtype: torch.dtype) -> DetectionModel:
    """A folded copy on a device, in the number format and the memory layout that are fastest there; `model` stays.

    Args:
        model: as it was trained, or folded.
        device: where the copy lies.
        dtype: of its weights and of the pictures that it is given.
    """
    folded = fuse(model).to(device, dtype)
    if device.type == "cuda":
        folded = folded.to(memory_format=torch.channels_last)
    return folded


@torch.no_grad()
def fuse(model: DetectionModel) -> DetectionModel:
    """A copy for inference, in evaluation mode, with every batch normalisation and branch folded; `model` stays.

    Folding is computed in float64 and rounded to the type of the weights. A folded model can be folded again.
    """
    folded = copy.deepcopy(model).eval().requires_grad_(False)
    for module in list(folded.modules()):
        if isinstance(module, RepConvUnit) and module.conv1 is not None and module.conv2 is not None:
            module.conv = _with_bias(module.conv1.conv, *_merged(module.conv1, module.conv2))
            module.conv1 = module.conv2 = None
    for module in folded.modules():
        if isinstance(module, NormedConv) and module.bn is not None:
            module.conv = _with_bias(module.conv, *_folded(module))
            module.bn = None
    return folded


@torch.no_grad()
def fold_again(folded: DetectionModel, model: DetectionModel) -> None:
    """Gives a copy that `fuse` made of `model` the weights that `model` has by now.

    The copy keeps its tensors, their types and places.
    """
    twins = dict(folded.named_modules())
    computed: set[str] = set()
    for name, module in model.named_modules():
        if name not in twins:
            continue  # a branch that was merged with its neighbour
        if isinstance(module, RepConvUnit) and module.conv1 is not None and module.conv2 is not None:
            kernel, bias = _merged(module.conv1, module.conv2)
        elif isinstance(module, NormedConv):
            kernel, bias = _folded(module)
        else:
            continue
        conv = twins[name].conv
        conv.weight.copy_(kernel)
        conv.bias.copy_(bias)
        computed.update((f"{name}.conv.weight", f"{name}.conv.bias"))
    present = model.state_dict()
    for name, value in folded.state_dict().items():
        if name not in computed:
            value.copy_(present[name])


def _folded(unit: NormedConv) -> tuple[Tensor, Tensor]:
    """Kernel and bias (float64) of the convolution that equals convolution and normalisation together."""
    norm = unit.bn
    assert isinstance(norm, _BatchNorm)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight.double() / torch.sqrt(norm.running_var.double() + norm.eps)
    kernel = unit.conv.weight.double() * scale.view(-1, 1, 1, 1)
    return kernel, norm.bias.double() - norm.running_mean.double() * scale


def _merged(wide: NormedConv, narrow: NormedConv) -> tuple[Tensor, Tensor]:
    """Kernel and bias (float64) of the 3x3 convolution that equals the sum of a 3x3 and a 1x1 branch."""
    wide_kernel, wide_bias = _folded(wide)
    narrow_kernel, narrow_bias = _folded(narrow)
    wide_kernel[:, :, 1:2, 1:2] += narrow_kernel
    return wide_kernel, wide_bias + narrow_bias


def _with_bias(conv: nn.Conv2d, kernel: Tensor, bias: Tensor) -> nn.Conv2d:
    """A convolution like `conv` with these weights, of the type and on the device of `conv`, without gradients."""
    weight = conv.weight
    with torch.device("meta"):
        result = nn.Conv2d(
            conv.in_channels,
            conv.out_channels,
            kernel_size=conv.kernel_size,  # type: ignore[arg-type]  # a pair of ints, declared as any tuple
            stride=conv.stride,  # type: ignore[arg-type]
            padding=conv.padding,  # type: ignore[arg-type]
            groups=conv.groups,
        )
    result.weight = nn.Parameter(kernel.detach().to(weight.dtype), requires_grad=False)
    result.bias = nn.Parameter(bias.detach().to(weight.dtype), requires_grad=False)
    return result.train(conv.training)
