"""The loss of single-head (gelan-*) and dual-head (yolov9-*) models."""

from collections.abc import Sequence
from typing import Protocol, cast

import torch
from torch import Tensor

from yolov9.loss.anchors import Anchors, boxes_from_distances, make_anchors
from yolov9.loss.assigner import assign
from yolov9.loss.settings import LossSettings
from yolov9.loss.targets import PixelTargets, pack_targets
from yolov9.loss.terms import class_term, distribution_term, expected_distances
from yolov9.ops.iou import IouKind, iou_pairs

Levels = Sequence[Tensor]
"""Raw maps of one head, finest level first: each (B, 4 x bins + classes, H, W)."""


class Detector(Protocol):
    """What the loss asks of a model."""

    @property
    def nc(self) -> int:
        """Number of classes."""

    @property
    def reg_max(self) -> int:
        """Number of distance bins of each side."""

    @property
    def stride(self) -> Tensor:
        """Cell size of each level in pixels."""


class DetectionLoss:
    """Loss of raw maps against targets.

    For targets in table form everything between the maps and the total has shapes that depend on shapes only, and
    nothing is read back from the device: forward, loss and backward can be recorded in a CUDA graph. All arithmetic is
    float32, also inside autocast.

    Args:
        model: gives the number of classes, bins and the strides; read once, here.
        settings: gains and assigner settings.
    """

    def __init__(self, model: Detector, settings: LossSettings) -> None:
        self.classes = int(model.nc)
        self.bins = int(model.reg_max)
        self.strides = tuple(float(stride) for stride in model.stride.tolist())
        self.settings = settings

    def __call__(self, raw: Levels | Sequence[Levels], targets: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the loss of a batch.

        Args:
            raw: maps of one head, or (auxiliary maps, main maps) of a dual model.
            targets: table (B, M, 5) of `pack_targets`, on the maps' device; or rows (n, 6) picture, class, centre x,
                centre y, width, height, which are packed here at the cost of waiting for the device.

        Returns:
            The total (sum of the terms x B, with gradient) and the terms box, class, distribution (3,), with gains, per
            picture, detached.
        """
        heads = _heads(raw)
        shares = (self.settings.aux, 1.0) if len(heads) == 2 else (1.0,)
        finest = heads[0][0]
        pictures, _, rows, columns = finest.shape
        with torch.autocast(finest.device.type, enabled=False):
            table = targets if targets.dim() == 3 else pack_targets(targets, pictures, bucket=(1,))
            real = PixelTargets.from_table(table, (round(rows * self.strides[0]), round(columns * self.strides[0])))
            terms = [self._head_terms(levels, real) * share for levels, share in zip(heads, shares, strict=True)]
            items = torch.stack(terms).sum(0)
            return items.sum() * pictures, items.detach()

    def _head_terms(self, levels: Levels, targets: PixelTargets) -> Tensor:
        """Box, class and distribution term (3,) of one head, with gains, divided by its sum of soft targets."""
        settings = self.settings
        anchors = make_anchors([(m.shape[2], m.shape[3]) for m in levels], self.strides, levels[0].device)
        # Pixels before channels: free of copying for channels-last maps, and a slot's values lie side by side.
        joined = torch.cat([m.flatten(2).transpose(1, 2) for m in levels], 1)
        sides, logits = torch.split(joined, [4 * self.bins, self.classes], 2)
        logits = logits.float().contiguous()
        assigned = assign(
            logits.detach(), self._predicted_boxes(sides.detach(), anchors), anchors.points, targets, settings
        )
        score_sum = assigned.soft.sum().clamp(min=1)

        label = targets.labels.gather(1, assigned.targets)
        index = assigned.anchors * self.classes + label
        class_sum = class_term(logits.flatten(1), index, assigned.soft, settings.cls_pw, settings.fl_gamma)

        slot_sides = sides.gather(1, assigned.anchors[..., None].expand(-1, -1, 4 * self.bins)).float()
        target_boxes = targets.boxes.gather(1, assigned.targets[..., None].expand(-1, -1, 4))
        box, distribution = self._box_terms(
            slot_sides, anchors.points[assigned.anchors], anchors.strides[assigned.anchors], target_boxes
        )
        return (
            torch.stack(
                (
                    (box * assigned.soft).sum() * settings.box,
                    class_sum * settings.cls,
                    (distribution * assigned.soft).sum() * settings.dfl,
                )
            )
            / score_sum
        )

    @torch.no_grad()
    def _predicted_boxes(self, sides: Tensor, anchors: Anchors) -> Tensor:
        """Boxes of all anchors (B, N, 4) in pixels from side distributions (B, N, 4 x bins)."""
        shares = self._by_side(sides).softmax(-1, dtype=torch.float32)
        return boxes_from_distances(anchors.points, expected_distances(shares) * anchors.strides)

    def _by_side(self, sides: Tensor) -> Tensor:
        """(B, n, 4 x bins) as (B, n, 4, bins)."""
        return sides.view(*sides.shape[:2], 4, self.bins)

    def _box_terms(self, sides: Tensor, points: Tensor, strides: Tensor, target_boxes: Tensor) -> tuple[Tensor, Tensor]:
        """1 - CIoU and the distribution loss of each slot: two (B, S), from sides (B, S, 4 x bins)."""
        log_shares = self._by_side(sides).log_softmax(-1)
        boxes = boxes_from_distances(points, expected_distances(log_shares.exp()) * strides)
        ciou = iou_pairs(boxes, target_boxes, IouKind.CIOU)
        distances = torch.cat((points - target_boxes[..., :2], target_boxes[..., 2:] - points), -1) / strides
        return 1 - ciou, distribution_term(log_shares, distances)


def _heads(raw: Levels | Sequence[Levels]) -> list[Levels]:
    """Maps of each head: [main] or [auxiliary, main]."""
    if isinstance(raw[0], Tensor):
        return [cast(Levels, raw)]
    return [cast(Levels, levels) for levels in raw]
