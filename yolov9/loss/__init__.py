"""Training loss: which anchors answer for which target, and what they are charged for."""

from yolov9.loss.detection import DetectionLoss, WholeBatch
from yolov9.loss.settings import LossSettings
from yolov9.loss.targets import TARGET_BUCKETS, PixelTargets, pack_targets

__all__ = ["TARGET_BUCKETS", "DetectionLoss", "LossSettings", "PixelTargets", "WholeBatch", "pack_targets"]
