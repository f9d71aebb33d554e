"""Estimates of the memory that a model takes. First estimates; a trainer that runs out splits its step."""

import re

from entrypoint.units import GIB, MIB

PICTURE_BYTES_AT_640 = {
    "yolov9-t": 420 * MIB,
    "yolov9-s": 620 * MIB,
    "yolov9-m": 1100 * MIB,
    "yolov9-c": 1400 * MIB,
    "yolov9-e": 2600 * MIB,
}
"""Training memory per picture of 640 x 640 in bf16 or fp16."""
PARAMETERS = {"yolov9-t": 3.7e6, "yolov9-s": 9.6e6, "yolov9-m": 32.8e6, "yolov9-c": 51.0e6, "yolov9-e": 69.4e6}
"""Parameters of the training form (with auxiliary branch, 80 classes)."""
BYTES_PER_PARAMETER = 22
"""float32 weights, gradients, momentum, EMA and a copy for the foreach update (20), and a 2-byte copy for autocast."""
UNKNOWN_MODEL = "yolov9-c"
"""A graph of the user's own, or a checkpoint whose name tells nothing, is taken for this one."""
GPU_OVERHEAD_BYTES = 1 * GIB
"""CUDA context (0.3 to 0.6 GiB), libraries' workspaces and fragmentation; outside what PyTorch counts."""
SINGLE_HEAD_SHARE = 0.65
"""A gelan graph keeps about this share of what the graph with auxiliary branch keeps."""
INFERENCE_SHARE = 0.15
"""Without backward only a few feature maps live at a time."""
FLOAT32_FACTOR = 1.9
"""Maps double; what is float32 under autocast anyway (loss, normalisation statistics) does not."""
REFERENCE_AREA = 640 * 640


def picture_bytes(model: str, imgsz: int, *, train: bool, float32: bool) -> int:
    """Returns the estimated memory per picture.

    Args:
        model: name of a graph, of a checkpoint, or anything.
        imgsz: side of the square picture in pixels; memory grows with the area.
        train: with what backward needs.
        float32: without autocast.
    """
    size = PICTURE_BYTES_AT_640[family(model)] * (imgsz * imgsz / REFERENCE_AREA)
    if model.startswith("gelan"):
        size *= SINGLE_HEAD_SHARE
    return int(size * (1 if train else INFERENCE_SHARE) * (FLOAT32_FACTOR if float32 else 1))


def model_bytes(model: str, *, train: bool) -> int:
    """Returns the estimated memory of weights and, for training, of everything that goes with them."""
    return int(PARAMETERS[family(model)] * (BYTES_PER_PARAMETER if train else 4))


def family(model: str) -> str:
    """Returns the row of the tables for a graph or checkpoint name."""
    match = re.search(r"(?:yolov9|gelan)-([tsmce])(?![a-z0-9])", model)
    return f"yolov9-{match.group(1)}" if match else UNKNOWN_MODEL
