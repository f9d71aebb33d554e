"""Box arithmetic and non-maximum suppression on tensors."""

from yolov9.ops.boxes import clip_boxes, scale_boxes, xywh_to_xyxy, xyxy_to_xywh
from yolov9.ops.iou import IouKind, iou_matrix, iou_pairs
from yolov9.ops.nms import nms

__all__ = ["IouKind", "clip_boxes", "iou_matrix", "iou_pairs", "nms", "scale_boxes", "xywh_to_xyxy", "xyxy_to_xywh"]
