"""Detection heads: raw maps of each level, and their decoding to boxes and class scores."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from yolov9.model.anchors import AnchorCache
from yolov9.model.conv import ConvUnit
from yolov9.ops.convolution import OutputConv
from yolov9.ops.lanes import Lane
from yolov9.ops.recompute import is_remembered

REG_MAX = 16
"""Bins of the distribution of one side's distance; the outputs of a level are 4 x 16 + classes."""
BOX_CHANNELS = 4 * REG_MAX
BOX_GROUPS = 4
"""The box branch handles the four sides apart (grouped convolutions)."""
CLASS_WIDTH_CAP = 128
"""Upper limit of the part of the class branch's width that grows with the number of classes."""
EXPECTED_OBJECTS = 5
"""Objects expected in a 640-px picture before training; sets the first bias of the class outputs."""
BIAS_IMAGE_SIZE = 640

Level = tuple[Tensor, Tensor]
"""What a head computes of a level: sides B x 64 x H/stride x W/stride, and class scores B x nc x the same."""
Levels = list[Level]
"""Finest level first."""
RawMaps = list[Tensor]
"""One map a level, finest first: B x (64 + classes) x H x W."""


def box_width(first_channels: int) -> int:
    """Width of the box branch: the larger of 64 and a quarter of the first level's channels, a multiple of 4."""
    return 4 * math.ceil(max(BOX_CHANNELS, first_channels / 4) / 4)


def default_class_width(first_channels: int, nc: int) -> int:
    """Width of the class branch when the graph names none: max(first level's channels, min(2 nc, 128))."""
    return max(first_channels, min(2 * nc, CLASS_WIDTH_CAP))


class BinExpectation(nn.Module):
    """Expected bin number of each side's distribution; the bin numbers are frozen weights (`conv`)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(REG_MAX, 1, 1, bias=False).requires_grad_(False)
        with torch.no_grad():
            # Not torch.arange: on the meta device that imports the framework's whole set of decompositions (seconds).
            self.conv.weight.copy_(torch.tensor([float(i) for i in range(REG_MAX)]).view(1, REG_MAX, 1, 1))

    def forward(self, boxes: Tensor) -> Tensor:
        """B x 64 x N float32 logits, channel = 16 side + bin -> B x 4 x N distances in cells."""
        batch, _, count = boxes.shape
        bins = boxes.view(batch, 4, REG_MAX, count).softmax(2)
        # Not a convolution: that would be cast to half precision inside autocast.
        return (bins * self.conv.weight.view(1, 1, REG_MAX, 1).to(bins.dtype)).sum(2)


def _box_branches(channels: Sequence[int]) -> nn.ModuleList:
    width = box_width(channels[0])
    return nn.ModuleList(
        nn.Sequential(
            ConvUnit(c, width, 3),
            ConvUnit(width, width, 3, groups=BOX_GROUPS),
            OutputConv(width, BOX_CHANNELS, 1, groups=BOX_GROUPS),
        )
        for c in channels
    )


def _class_branches(channels: Sequence[int], nc: int, class_width: int | None) -> nn.ModuleList:
    width = class_width or default_class_width(channels[0], nc)
    return nn.ModuleList(
        nn.Sequential(ConvUnit(c, width, 3), ConvUnit(width, width, 3), OutputConv(width, nc, 1)) for c in channels
    )


def _last_bias(branch: nn.Module) -> Tensor:
    assert isinstance(branch, nn.Sequential)
    bias = branch[-1].bias
    assert isinstance(bias, Tensor)
    return bias


def _level(feature: tuple[Tensor, Tensor], box: nn.Module, classes: nn.Module, *, beside: bool) -> Level:
    """Sides and scores of one level, from its feature for each of them; `beside` runs the two branches side by side."""
    to_box, to_classes = feature
    lane = Lane("class scores", wanted=beside and not is_remembered(to_classes))
    with lane.run([to_classes]):
        scores = classes(to_classes)
    sides = box(to_box)
    lane.join([scores])
    return sides, scores


def join_levels(levels: Levels) -> RawMaps:
    """Concatenates sides and class scores of each level."""
    return [torch.cat(level, 1) for level in levels]


class DetectionHead(nn.Module, ABC):
    """What both heads share: strides, first biases, decoding.

    Args:
        nc: number of classes.
        strides: pixels a cell, of each level of one part.
    """

    is_dual = False

    def __init__(self, nc: int, strides: Sequence[int]) -> None:
        super().__init__()
        self.nc = nc
        self.strides = tuple(strides)
        self._anchors = AnchorCache(strides)

    def _start_biases(self, boxes: nn.ModuleList, classes: nn.ModuleList) -> None:
        for box, cls, stride in zip(boxes, classes, self.strides, strict=True):
            cells = (BIAS_IMAGE_SIZE / stride) ** 2
            nn.init.constant_(_last_bias(box), 1.0)
            nn.init.constant_(_last_bias(cls), math.log(EXPECTED_OBJECTS / self.nc / cells))

    @abstractmethod
    def main_level(self, level: int, feature: tuple[Tensor, Tensor]) -> Level:
        """Sides and scores of a level of the part that predictions are taken from, from the feature of that level."""

    def is_last(self, level: int) -> bool:
        """Tells whether a level is the coarsest, which is computed last: what runs beside it shortens the wait."""
        return level == len(self.strides) - 1

    def decode(self, maps: RawMaps, *, aux: bool = False) -> Tensor:
        """Raw maps -> B x (4 + nc) x N float32: centre x, centre y, width, height in pixels, class probabilities.

        Args:
            maps: raw maps of one part, in any floating type.
            aux: the maps come from the auxiliary part of a dual head.
        """
        flat = torch.cat([m.flatten(2) for m in maps], 2).float()
        boxes, classes = flat[:, :BOX_CHANNELS], flat[:, BOX_CHANNELS:]
        left_top, right_bottom = self._expectation(aux)(boxes).chunk(2, 1)
        points, strides = self._anchors.get(maps)
        low, high = points - left_top, points + right_bottom
        return torch.cat(((low + high) / 2 * strides, (high - low) * strides, classes.sigmoid()), 1)

    def freeze_bins(self) -> None:
        """Keeps the bin numbers out of training, also after their tensors were replaced."""
        for module in self.modules():
            if isinstance(module, BinExpectation):
                module.requires_grad_(False)

    @abstractmethod
    def _expectation(self, aux: bool) -> BinExpectation:
        """The bin numbers of one part."""


class DDetect(DetectionHead):
    """Single head: box branches (`cv2`), class branches (`cv3`), bin numbers (`dfl`).

    Args:
        nc: number of classes.
        channels: channels of each level, finest first.
        strides: pixels a cell, of each level.
        class_width: width of the class branches; None: the rule of `default_class_width`.
    """

    def __init__(self, nc: int, channels: Sequence[int], strides: Sequence[int], class_width: int | None) -> None:
        super().__init__(nc, strides)
        self.cv2 = _box_branches(channels)
        self.cv3 = _class_branches(channels, nc, class_width)
        self.dfl = BinExpectation()
        self._start_biases(self.cv2, self.cv3)

    def main_level(self, level: int, feature: tuple[Tensor, Tensor]) -> Level:
        """Sides and scores of a level from its feature, given twice (`fan_out`)."""
        return _level(feature, self.cv2[level], self.cv3[level], beside=self.is_last(level))

    def _expectation(self, aux: bool) -> BinExpectation:
        return self.dfl


class DualDDetect(DetectionHead):
    """Training head: an auxiliary part (`cv2`, `cv3`, `dfl`) and the main part (`cv4`, `cv5`, `dfl2`).

    `channels` holds the auxiliary levels, then the main ones; `strides` those of one part. Each part derives its
    widths from its own first level.
    """

    is_dual = True

    def __init__(self, nc: int, channels: Sequence[int], strides: Sequence[int], class_width: int | None) -> None:
        super().__init__(nc, strides)
        aux, main = channels[: len(strides)], channels[len(strides) :]
        self.cv2 = _box_branches(aux)
        self.cv3 = _class_branches(aux, nc, class_width)
        self.cv4 = _box_branches(main)
        self.cv5 = _class_branches(main, nc, class_width)
        self.dfl = BinExpectation()
        self.dfl2 = BinExpectation()
        self._start_biases(self.cv2, self.cv3)
        self._start_biases(self.cv4, self.cv5)

    def aux_level(self, level: int, feature: tuple[Tensor, Tensor]) -> Level:
        """Sides and scores of a level of the auxiliary part from its feature, given twice (`fan_out`)."""
        return _level(feature, self.cv2[level], self.cv3[level], beside=self.is_last(level))

    def main_level(self, level: int, feature: tuple[Tensor, Tensor]) -> Level:
        """Sides and scores of a level of the main part from its feature, given twice (`fan_out`)."""
        return _level(feature, self.cv4[level], self.cv5[level], beside=self.is_last(level))

    def _expectation(self, aux: bool) -> BinExpectation:
        return self.dfl if aux else self.dfl2
