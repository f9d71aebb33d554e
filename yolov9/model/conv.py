"""Convolution units: the only blocks that hold convolutions with batch normalisation."""

from torch import Tensor, nn

from yolov9.model.norm_act import norm_silu, two_norms_silu
from yolov9.ops.convolution import convolve
from yolov9.ops.fan_out import fan_out
from yolov9.ops.join import Join
from yolov9.ops.lanes import Lane
from yolov9.ops.recompute import is_remembered

NORM_EPS = 1e-3
"""Added to the variance; value of the reference models (parity/structure, `batchnorm`)."""
NORM_MOMENTUM = 0.03
"""Weight of the newest batch in the running statistics; value of the reference models."""

BESIDE_ELEMENTS = 8 * 2**20
"""Inputs up to this size leave room on the GPU for a second convolution beside the first; the gradient of a larger one
would also take memory that a graph could not use again (see `yolov9.ops.lanes`)."""


class NormedConv(nn.Module):
    """Convolution without bias (`conv`) and its batch normalisation (`bn`), applied by the owner.

    After folding `conv` has a bias and `bn` is None.

    Args:
        c_in: input channels.
        c_out: output channels.
        kernel: side of the square kernel; the padding is half of it, rounded down.
        stride: step of the convolution.
        groups: groups of the convolution.
    """

    def __init__(self, c_in: int, c_out: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn: nn.BatchNorm2d | None = nn.BatchNorm2d(c_out, eps=NORM_EPS, momentum=NORM_MOMENTUM)


class ConvUnit(NormedConv):
    """Convolution, batch normalisation, SiLU; optionally a tensor is added, or the result goes to a concatenation."""

    def forward(
        self, x: Tensor, residual: Tensor | None = None, join: Join | None = None, dense_from: int | None = 0
    ) -> Tensor:
        """B x c_in x H x W -> B x c_out x H/stride x W/stride; the other arguments are those of `norm_silu`."""
        return norm_silu(convolve(x, self.conv), self.bn, residual, join, dense_from)


class RepConvUnit(nn.Module):
    """Re-parameterisable 3x3 unit: a 3x3 (`conv1`) and a 1x1 branch (`conv2`), summed, then SiLU.

    After folding both branches are one 3x3 convolution with bias (`conv`), and the branches are gone.

    Args:
        c_in: input channels.
        c_out: output channels.
    """

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.conv: nn.Conv2d | None = None
        self.conv1: NormedConv | None = NormedConv(c_in, c_out, 3)
        self.conv2: NormedConv | None = NormedConv(c_in, c_out, 1)

    def forward(self, x: Tensor) -> Tensor:
        """B x c_in x H x W -> B x c_out x H x W."""
        wide, narrow = self.conv1, self.conv2
        if wide is None or narrow is None or wide.bn is None or narrow.bn is None:
            assert self.conv is not None
            return norm_silu(convolve(x, self.conv), None)
        # An input that is made again would be made twice: streams do not share it.
        lane = Lane("narrow branch", wanted=x.numel() <= BESIDE_ELEMENTS and not is_remembered(x))
        to_wide, to_narrow = fan_out(x)
        with lane.run([x]):
            second = convolve(to_narrow, narrow.conv)
        first = convolve(to_wide, wide.conv)
        lane.join([second])
        return two_norms_silu(first, wide.bn, second, narrow.bn)
