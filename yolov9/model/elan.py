"""Aggregation blocks: an input is cut in halves, one half goes through two steps, and all stages are concatenated."""

from torch import Tensor, nn

from yolov9.model.conv import ConvUnit, RepConvUnit
from yolov9.ops.fan_out import fan_out
from yolov9.ops.join import Join


class Bottleneck(nn.Module):
    """Re-parameterisable 3x3 unit (`cv1`), 3x3 unit (`cv2`), plus the input. Keeps the number of channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.cv1 = RepConvUnit(channels, channels)
        self.cv2 = ConvUnit(channels, channels, 3)

    def forward(self, x: Tensor, join: Join | None = None) -> Tensor:
        """B x C x H x W -> the same shape; with `join` the result is its next part and not needed elsewhere."""
        to_units, residual = fan_out(x)
        inner = self.cv1(to_units)
        result: Tensor = self.cv2(inner, residual=residual, join=join, dense_from=0 if join is None else None)
        return result


class RepNCSP(nn.Module):
    """Two 1x1 units from one input; `count` bottlenecks follow the first; both are concatenated and mixed (`cv3`)."""

    def __init__(self, c_in: int, c_out: int, count: int) -> None:
        super().__init__()
        hidden = c_out // 2
        self.joined = 2 * hidden
        self.cv1 = ConvUnit(c_in, hidden)
        self.cv2 = ConvUnit(c_in, hidden)
        self.cv3 = ConvUnit(2 * hidden, c_out)
        self.m = nn.Sequential(*(Bottleneck(hidden) for _ in range(count)))

    def forward(self, x: Tensor) -> Tensor:
        """B x c_in x H x W -> B x c_out x H x W."""
        join = Join(self.joined)
        # Without bottlenecks the first unit is a part itself.
        to_first, to_second = fan_out(x)
        inner = self.cv1(to_first) if len(self.m) else self.cv1(to_first, join=join, dense_from=None)
        for number, bottleneck in enumerate(self.m, 1):
            inner = bottleneck(inner, join if number == len(self.m) else None)
        self.cv2(to_second, join=join, dense_from=None)
        result: Tensor = self.cv3(join.result())
        return result


def _last_into(join: Join, step: nn.Module, x: Tensor, dense_from: int | None) -> Tensor:
    """Applies an inner step, a unit or a sequence that ends with one, whose result becomes the next part of `join`."""
    if isinstance(step, nn.Sequential):
        for module in step[:-1]:
            x = module(x)
        step = step[-1]
    result: Tensor = step(x, join=join, dense_from=dense_from)
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
        self.joined = c_mid + 2 * c_part
        self.cv1 = ConvUnit(c_in, c_mid)
        self.cv2 = first
        self.cv3 = second
        self.cv4 = ConvUnit(self.joined, c_out)

    def forward(self, x: Tensor) -> Tensor:
        """B x c_in x H x W -> B x c_out x H x W."""
        join = Join(self.joined)
        second_half = self.cv1(x, join=join, dense_from=self.kept)
        inner = _last_into(join, self.cv2, second_half, dense_from=0)
        _last_into(join, self.cv3, inner, dense_from=None)
        result: Tensor = self.cv4(join.result())
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
