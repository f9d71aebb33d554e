"""Convolution units: the only blocks that hold convolutions with batch normalisation."""

from torch import Tensor, nn

from yolov9.model.norm_act import norm_silu, norm_silu_add, two_norms_silu

NORM_EPS = 1e-3
"""Added to the variance; value of the reference models (parity/structure, `batchnorm`)."""
NORM_MOMENTUM = 0.03
"""Weight of the newest batch in the running statistics; value of the reference models."""


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
    """Convolution, batch normalisation, SiLU; optionally a tensor is added to the result."""

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """B x c_in x H x W -> B x c_out x H/stride x W/stride; `residual` has the shape of the result."""
        y = self.conv(x)
        return norm_silu(y, self.bn) if residual is None else norm_silu_add(y, self.bn, residual)


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
            return norm_silu(self.conv(x), None)
        return two_norms_silu(wide.conv(x), wide.bn, narrow.conv(x), narrow.bn)
