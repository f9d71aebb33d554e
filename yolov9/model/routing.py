"""Blocks that hand tensors on: nothing here has weights, except CBLinear."""

from collections.abc import Sequence

from torch import Tensor, nn

from yolov9.ops.concatenate import concatenate
from yolov9.ops.convolution import OutputConv
from yolov9.ops.resize import fused_applies, resize_nearest


class Silence(nn.Module):
    """Passes the picture through, so that later layers can refer to it."""

    def forward(self, x: Tensor) -> Tensor:
        """Returns `x`."""
        return x


class Concat(nn.Module):
    """Concatenates its inputs along the channels; those that an Upsample left to it are enlarged on the way."""

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """List of B x Ci x H x W -> B x sum(Ci) x H x W."""
        return concatenate(inputs)


class Upsample(nn.Module):
    """Doubles height and width by nearest neighbour."""

    def __init__(self) -> None:
        super().__init__()
        self.left_to_concat = False
        """Whether only a Concat reads the result, one that has another input of that size: where kernels of our own
        do both, it is the one to enlarge."""

    def forward(self, x: Tensor) -> Tensor:
        """B x C x H x W -> B x C x 2H x 2W."""
        if self.left_to_concat and fused_applies(x):
            return x
        return resize_nearest(x, (2 * x.shape[2], 2 * x.shape[3]))


class CBLinear(nn.Module):
    """1x1 convolution with bias (`conv`) whose result is cut into pieces of the given widths."""

    def __init__(self, c_in: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.widths = list(widths)
        self.conv = OutputConv(c_in, sum(widths), 1)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """B x c_in x H x W -> one B x width x H x W view for each width."""
        return tuple(self.conv(x).split(self.widths, 1))


class CBFuse(nn.Module):
    """Adds one piece of each CBLinear input, resized by nearest neighbour, to the last input."""

    def __init__(self, picks: Sequence[int]) -> None:
        super().__init__()
        self.picks = tuple(picks)

    def forward(self, inputs: Sequence[tuple[Tensor, ...] | Tensor]) -> Tensor:
        """CBLinear results, then B x C x H x W -> B x C x H x W."""
        target = inputs[-1]
        assert isinstance(target, Tensor)
        total = target
        for pieces, pick in zip(inputs[:-1], self.picks, strict=True):
            piece = pieces[pick]
            if piece.shape[-2:] != target.shape[-2:]:
                piece = resize_nearest(piece, (target.shape[-2], target.shape[-1]))
            total = total + piece
        return total
