"""GPU memory that `--decode gpu` takes: read by the plan, which knows no PyTorch, and by the trainer."""

from yolov9.config.loader_memory import BYTES_PER_PIXEL, MIXED_SAMPLES, MOSAIC_PICTURES, PICTURE_FACTOR, WINDOW_LAG

LARGEST_FACTOR = 4
"""A picture just under twice as long as the training size, in terms of its area."""
DECODED_AT_ONCE_BYTES = 128 << 20
"""Pixels of one call of the decoder: what does not fit is decoded in the next one."""


def picture_store_bytes(imgsz: int, window: int, batch: int) -> int:
    """Returns the size of the memory in which decoded pictures stay on the GPU.

    Args:
        imgsz: training size.
        window: samples that partners of a mosaic are chosen from; 0: all.
        batch: samples that are drawn at a time.
    """
    square = imgsz * imgsz * BYTES_PER_PIXEL
    kept = (window + WINDOW_LAG + batch) * PICTURE_FACTOR * square
    # One sample must find all of its pictures, and a gap at the end of the memory.
    return max(kept, (MIXED_SAMPLES * MOSAIC_PICTURES + 1) * LARGEST_FACTOR * square)
