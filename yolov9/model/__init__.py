"""The detector: graphs, blocks, heads, weights files. `build_model` and `load_weights` are the usual ways in."""

from yolov9.model.build import build_model
from yolov9.model.convert import convert
from yolov9.model.cost import count_gflops, count_parameters
from yolov9.model.detector import DetectionModel
from yolov9.model.fold import fuse

__all__ = ["DetectionModel", "build_model", "convert", "count_gflops", "count_parameters", "fuse"]
