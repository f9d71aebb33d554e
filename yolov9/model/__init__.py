"""The detector: graphs, blocks, heads, weights files. `build_model` and `load_weights` are the usual ways in."""

from yolov9.model.build import build_model
from yolov9.model.detector import DetectionModel

__all__ = ["DetectionModel", "build_model"]
