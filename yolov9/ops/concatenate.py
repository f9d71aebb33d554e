"""Concatenation along the channels, of parts that may have to be enlarged first."""

from collections.abc import Sequence

import torch
from torch import Tensor

from yolov9.ops.resize import fused_applies, resize_nearest


def concatenate(parts: Sequence[Tensor]) -> Tensor:
    """Concatenates along the channels; smaller parts are first enlarged to the largest height and width.

    Args:
        parts: B x Ci x Hi x Wi; sizes are whole fractions of the largest one.

    Returns:
        B x sum(Ci) x H x W.
    """
    height, width = (max(part.shape[axis] for part in parts) for axis in (2, 3))
    if _fused_applies(parts, height, width):
        from yolov9.ops.concatenate_triton import concatenate_fused

        return concatenate_fused(parts)
    same = (part if part.shape[2:] == (height, width) else resize_nearest(part, (height, width)) for part in parts)
    return torch.cat(tuple(same), 1)


def _fused_applies(parts: Sequence[Tensor], height: int, width: int) -> bool:
    whole = all(height % h == 0 and w * (height // h) == width for h, w in (part.shape[2:] for part in parts))
    alike = len({part.dtype for part in parts}) == 1
    return whole and alike and all(fused_applies(part) for part in parts)
