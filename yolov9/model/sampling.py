"""Blocks that change or pool over the spatial size."""

import torch
from torch import Tensor, nn

from yolov9.model.conv import ConvUnit
from yolov9.ops.average_pool import average_pool_2x2
from yolov9.ops.join import Join
from yolov9.ops.max_pool import max_pool

POOL_SIZE = 5
"""Side of the neighbourhood of the pyramid pooling."""


class AConv(nn.Module):
    """Average over 2x2 with step 1, then a 3x3 unit with step 2 (`cv1`). Halves an even height and width."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.cv1 = ConvUnit(c_in, c_out, 3, 2)

    def forward(self, x: Tensor) -> Tensor:
        """B x c_in x H x W -> B x c_out x H/2 x W/2."""
        result: Tensor = self.cv1(average_pool_2x2(x))
        return result


class ADown(nn.Module):
    """As AConv for the first half of the channels (`cv1`); 3x3 maximum and a 1x1 unit for the second half (`cv2`)."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.cv1 = ConvUnit(c_in // 2, c_out // 2, 3, 2)
        self.cv2 = ConvUnit(c_in // 2, c_out // 2)

    def forward(self, x: Tensor) -> Tensor:
        """B x c_in x H x W -> B x c_out x H/2 x W/2."""
        first, second = average_pool_2x2(x).chunk(2, 1)
        return torch.cat((self.cv1(first), self.cv2(max_pool(second, 3, 2))), 1)


class SamePool(nn.Module):
    """Maximum over a 5x5 neighbourhood; keeps the size."""

    def __init__(self) -> None:
        super().__init__()
        self.m = nn.MaxPool2d(POOL_SIZE, 1, POOL_SIZE // 2)

    def forward(self, x: Tensor, join: Join | None = None) -> Tensor:
        """B x C x H x W -> the same shape; with `join` the result is its next part."""
        return max_pool(x, POOL_SIZE, join=join)


class SPPELAN(nn.Module):
    """1x1 unit, three poolings in a row, all four stages concatenated and mixed by a 1x1 unit (`cv5`)."""

    def __init__(self, c_in: int, c_out: int, c_mid: int) -> None:
        super().__init__()
        self.joined = 4 * c_mid
        self.cv1 = ConvUnit(c_in, c_mid)
        self.cv2 = SamePool()
        self.cv3 = SamePool()
        self.cv4 = SamePool()
        self.cv5 = ConvUnit(4 * c_mid, c_out)

    def forward(self, x: Tensor) -> Tensor:
        """B x c_in x H x W -> B x c_out x H x W."""
        join = Join(self.joined)
        stage = self.cv1(x, join=join, dense_from=None)
        for pool in (self.cv2, self.cv3, self.cv4):
            stage = pool(stage, join)
        result: Tensor = self.cv5(join.result())
        return result
