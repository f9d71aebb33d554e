"""Data set, index, picture reading and loader. Nothing that a loader worker imports needs torch."""

from yolov9.data.dataset_config import DatasetConfig, load_dataset_config
from yolov9.data.images import ImageError, read_image
from yolov9.data.index import DatasetIndex
from yolov9.data.labels import ParsedLabels, read_labels
from yolov9.data.letterbox import letterbox
from yolov9.data.summary import DatasetSummary

__all__ = [
    "DatasetConfig",
    "DatasetIndex",
    "DatasetSummary",
    "ImageError",
    "ParsedLabels",
    "letterbox",
    "load_dataset_config",
    "read_image",
    "read_labels",
]
