"""Rectangular batches: pictures in the order of their aspect ratio, each batch as small as its pictures allow."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class RectBatches:
    """Order of the pictures and shape of each batch."""

    order: NDArray[np.int64]
    """(N,) picture numbers, widest first."""
    shapes_hw: NDArray[np.int64]
    """(batches, 2) height and width in pixels, multiples of the stride."""


def plan_rect_batches(
    sizes_wh: NDArray[np.int32], batch_size: int, imgsz: int, *, stride: int = 32, pad: float = 0.0
) -> RectBatches:
    """Sorts pictures by aspect ratio and computes the shape of each batch.

    Args:
        sizes_wh: (N, 2) upright width and height.
        batch_size: pictures per batch; the last batch may have fewer.
        imgsz: longer side of the pictures in pixels.
        stride: the model's largest stride in pixels.
        pad: extra border in strides (0.5 in validation).
    """
    aspect = sizes_wh[:, 1] / sizes_wh[:, 0]  # height / width
    order = np.argsort(aspect, kind="stable")
    aspect = aspect[order]
    shapes = []
    for start in range(0, len(order), batch_size):
        lowest, highest = aspect[start], aspect[min(start + batch_size, len(order)) - 1]
        height = highest if highest < 1 else 1.0
        width = 1 / lowest if lowest > 1 else 1.0
        shapes.append((height, width))
    scaled = np.array(shapes, np.float64).reshape(-1, 2) * imgsz / stride + pad
    return RectBatches(order, np.ceil(scaled).astype(np.int64) * stride)
