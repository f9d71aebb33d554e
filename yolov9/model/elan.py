"""Aggregation blocks: an input is cut in halves, one half goes through two steps, and all stages are concatenated."""

import torch
from torch import Tensor, nn

from yolov9.model.conv import ConvUnit, RepConvUnit


class Bottleneck(nn.Module):
    """Re-parameterisable 3x3 unit (`cv1`), 3x3 unit (`cv2`), plus the input. Keeps the number of channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.cv1 = RepConvUnit(channels, channels)
        self.cv2 = ConvUnit(channels, channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        """B x C x H x W -> the same shape."""
        result: Tensor = self.cv2(self.cv1(x), residual=x)
        return result


class RepNCSP(nn.Module):
    """Two 1x1 units from one input; `count` bottlenecks follow the first; both are concatenated and mixed (`cv3`)."""

    def __init__(self, c_in: int, c_out: int, count: int) -> None:
        super().__init__()
        hidden = c_out // 2
        self.cv1 = ConvUnit(c_in, hidden)
        self.cv2 = ConvUnit(c_in, hidden)
        self.cv3 = ConvUnit(2 * hidden, c_out)
        self.m = nn.Sequential(*(Bottleneck(hidden) for _ in range(count)))

    def forward(self, x: Tensor) -> Tensor:
        """B x c_in x H x W -> B x c_out x H x W."""
        result: Tensor = self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), 1))
        return result


class ElanBlock(nn.Module):
    """Frame of both ELAN blocks: `cv1`, halves, two inner steps (`cv2`, `cv3`), concatenation, `cv4`.

    Args:
        c_in: input channels.
        c_out: output channels.
        c_mid: channels after `cv1`; even.
        c_part: channels after each inner step.
        first: first inner step, c_mid/2 -> c_part.
        second: second inner step, c_part -> c_part.
    """

    def __init__(self, c_in: int, c_out: int, c_mid: int, c_part: int, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.kept = c_mid // 2
        """Channels of the first half, which goes to the concatenation only."""
        self.cv1 = ConvUnit(c_in, c_mid)
        self.cv2 = first
        self.cv3 = second
        self.cv4 = ConvUnit(c_mid + 2 * c_part, c_out)

    def forward(self, x: Tensor) -> Tensor:
        """B x c_in x H x W -> B x c_out x H x W."""
        halves = self.cv1(x)
        inner = self.cv2(halves[:, self.kept :])
        result: Tensor = self.cv4(torch.cat((halves, inner, self.cv3(inner)), 1))
        return result


class ELAN1(ElanBlock):
    """ELAN whose inner steps are 3x3 units."""

    def __init__(self, c_in: int, c_out: int, c_mid: int, c_part: int) -> None:
        super().__init__(c_in, c_out, c_mid, c_part, ConvUnit(c_mid // 2, c_part, 3), ConvUnit(c_part, c_part, 3))


class RepNCSPELAN4(ElanBlock):
    """ELAN whose inner steps are a RepNCSP with `count` bottlenecks followed by a 3x3 unit."""

    def __init__(self, c_in: int, c_out: int, c_mid: int, c_part: int, count: int = 1) -> None:
        first = nn.Sequential(RepNCSP(c_mid // 2, c_part, count), ConvUnit(c_part, c_part, 3))
        second = nn.Sequential(RepNCSP(c_part, c_part, count), ConvUnit(c_part, c_part, 3))
        super().__init__(c_in, c_out, c_mid, c_part, first, second)
