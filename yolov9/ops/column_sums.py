"""Sum over all pixels of each channel: the gradient of a bias."""

from torch import Tensor

from yolov9.ops.plain import kernels_take


def add_column_sums(x: Tensor, total: Tensor) -> None:
    """Adds to `total` (C, float32) the sum of `x` (B x C x H x W) over pictures and pixels, taken in float32."""
    if kernels_take(x):
        from yolov9.ops.column_sums_triton import add_column_sums_fused

        add_column_sums_fused(x, total)
    else:
        total += x.float().sum((0, 2, 3))
