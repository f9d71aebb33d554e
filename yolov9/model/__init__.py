"""The detector: graphs, blocks, heads, weights files. `build_model` and `load_weights` are the usual ways in."""

from yolov9.model.build import build_model
from yolov9.model.checkpoint import Checkpoint, load_weights, read_checkpoint
from yolov9.model.convert import convert
from yolov9.model.cost import count_gflops, count_parameters
from yolov9.model.detector import DetectionModel
from yolov9.model.fold import fold_again, for_inference, fuse
from yolov9.model.transfer import TransferReport, transfer

__all__ = [
    "Checkpoint",
    "DetectionModel",
    "TransferReport",
    "build_model",
    "convert",
    "count_gflops",
    "count_parameters",
    "fold_again",
    "for_inference",
    "fuse",
    "load_weights",
    "read_checkpoint",
    "transfer",
]
