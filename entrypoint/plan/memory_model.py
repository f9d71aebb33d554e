"""Estimates of the memory that a model takes. First estimates; a trainer that runs out splits its step."""

import re

from entrypoint.units import MIB

PICTURE_MIB_AT_640 = {
    "yolov9-t": 197,
    "yolov9-s": 343,
    "yolov9-m": 733,
    "yolov9-c": 988,
    "yolov9-e": 1221,
    "gelan-t": 140,
    "gelan-s": 253,
    "gelan-m": 431,
    "gelan-c": 561,
    "gelan-e": 1051,
}
"""MiB that autograd keeps per picture of 640 x 640 in bf16, model and loss together: counted with
`torch.autograd.graph.saved_tensors_hooks` as the difference between batches of 3 and of 1."""
PARAMETERS = {
    "yolov9-t": 3.7e6,
    "yolov9-s": 9.8e6,
    "yolov9-m": 32.9e6,
    "yolov9-c": 51.2e6,
    "yolov9-e": 69.5e6,
    "gelan-t": 2.4e6,
    "gelan-s": 7.2e6,
    "gelan-m": 20.1e6,
    "gelan-c": 25.5e6,
    "gelan-e": 58.1e6,
}
"""Parameters with 80 classes, as counted on the built models."""
TRANSIENT_FACTOR = 1.3
"""Gradients of large maps and workspaces come on top of what autograd keeps: 1.17 measured as resident memory on the
CPU (yolov9-s, float32); rounded up for cuDNN's workspaces and crowded pictures."""
BYTES_PER_PARAMETER = 22
"""float32 weights, gradients, momentum, EMA and a copy for the foreach update (20), and a 2-byte copy for autocast."""
UNKNOWN_MODEL = "yolov9-c"
"""A graph of the user's own, or a checkpoint whose name tells nothing, is taken for this one."""
INFERENCE_SHARE = 0.15
"""Without backward only a few feature maps live at a time."""
FLOAT32_FACTOR = 1.97
"""Counted the same way without autocast: yolov9-t 386 MiB, yolov9-s 677 MiB."""
REFERENCE_AREA = 640 * 640


def picture_bytes(model: str, imgsz: int, *, train: bool, float32: bool) -> int:
    """Returns the estimated memory per picture.

    Args:
        model: name of a graph, of a checkpoint, or anything.
        imgsz: side of the square picture in pixels; memory grows with the area.
        train: with what backward needs.
        float32: without autocast.
    """
    size = PICTURE_MIB_AT_640[family(model)] * MIB * TRANSIENT_FACTOR * (imgsz * imgsz / REFERENCE_AREA)
    return int(size * (1 if train else INFERENCE_SHARE) * (FLOAT32_FACTOR if float32 else 1))


def model_bytes(model: str, *, train: bool) -> int:
    """Returns the estimated memory of weights and, for training, of everything that goes with them."""
    return int(PARAMETERS[family(model)] * (BYTES_PER_PARAMETER if train else 4))


def family(model: str) -> str:
    """Returns the row of the tables for a graph or checkpoint name; `yolov9-c-converted` is a gelan-c."""
    match = re.search(r"(yolov9|gelan)-([tsmce])(?![a-z0-9])", model)
    if match is None:
        return UNKNOWN_MODEL
    return f"{'gelan' if 'converted' in model else match.group(1)}-{match.group(2)}"
