"""Resizing by nearest neighbour."""

import torch
from torch import Tensor
from torch.nn import functional as F


def resize_nearest(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Resizes B x C x H x W to B x C x size by nearest neighbour, in the dtype of `x`.

    Autocast would do this in float32, although values are only copied, and everything after it would follow.
    """
    with torch.autocast(x.device.type, enabled=False):
        return F.interpolate(x, size=size, mode="nearest")
