"""The loss of single-head (gelan-*) and dual-head (yolov9-*) models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor

from yolov9.loss.anchors import Anchors, KnownAnchors
from yolov9.loss.assigner import Assignment, assign
from yolov9.loss.settings import LossSettings
from yolov9.loss.targets import PixelTargets, pack_targets
from yolov9.loss.terms import box_terms, class_term, predicted_boxes
from yolov9.ops.lanes import AUXILIARY, Lane

Level = tuple[Tensor, Tensor]
"""Sides (B, 4 x bins, H, W) and class scores (B, classes, H, W) of one level."""
Head = Sequence[Tensor] | Sequence[Level]
"""Levels of one head, finest first: raw maps (B, 4 x bins + classes, H, W), or their two parts."""
Raw = Sequence[Tensor] | Sequence[Head]
"""Raw maps of one head; or the levels of each head, the auxiliary one of a dual model first."""


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


@dataclass(frozen=True)
class WholeBatch:
    """What the loss of a part of a batch needs to know of all parts, so that they add up to the loss of the whole."""

    score_sums: Tensor
    """(heads,) float32: sums of `DetectionLoss.score_sums` over all parts; more entries than heads do no harm."""
    pictures: Tensor
    """() float32: pictures of all parts together."""


@dataclass(frozen=True)
class _Head:
    """One head's maps with all levels joined, and the targets of its anchors."""

    sides: Tensor
    """(B, N, 4 x bins)."""
    logits: Tensor
    """(B, N, classes)."""
    slots: Assignment


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
        self._anchors = KnownAnchors(self.strides)

    def __call__(
        self, raw: Raw, targets: Tensor | PixelTargets, whole: WholeBatch | None = None
    ) -> tuple[Tensor, Tensor]:
        """Computes the loss of a batch, or of a part of one.

        Args:
            raw: what the model gave.
            targets: table (B, M, 5) of `pack_targets`, on the maps' device; or rows (n, 6) picture, class, centre x,
                centre y, width, height, which are packed here at the cost of waiting for the device; or what `prepare`
                made of a table.
            whole: the batch that these pictures are a part of; totals, terms and gradients of all its parts add up to
                those of the batch. None: these pictures are all.

        Returns:
            The total (sum of the terms x B, with gradient) and the terms box, class, distribution (3,), with gains, per
            picture, detached.
        """
        heads = self._heads(raw)
        shares = (self.settings.aux, 1.0) if len(heads) == 2 else (1.0,)
        pictures = len(heads[0][0][0]) if whole is None else whole.pictures

        def terms(number: int, anchors: Anchors, real: PixelTargets) -> Tensor:
            score_sum = None if whole is None else whole.score_sums[number]
            return self._head_terms(heads[number], anchors, real, score_sum) * shares[number]

        items = torch.stack(self._of_each_head(terms, heads, targets)).sum(0)
        return items.sum() * pictures, items.detach()

    @torch.no_grad()
    def score_sums(self, raw: Raw, targets: Tensor | PixelTargets) -> Tensor:
        """Returns each head's sum of soft targets (heads,), which its terms are divided by; arguments as for a loss."""
        heads = self._heads(raw)

        def score_sum(number: int, anchors: Anchors, real: PixelTargets) -> Tensor:
            return self._assign(heads[number], anchors, real).slots.soft.sum()

        return torch.stack(self._of_each_head(score_sum, heads, targets))

    def prepare(self, targets: Tensor, pictures: int, picture_hw: tuple[int, int]) -> PixelTargets:
        """Returns targets as they are calculated with.

        Args:
            targets: table or rows, as for a loss.
            pictures: number of pictures.
            picture_hw: height and width of the pictures that the network is given.
        """
        table = targets if targets.dim() == 3 else pack_targets(targets, pictures, bucket=(1,))
        return PixelTargets.from_table(table, picture_hw)

    def _of_each_head(
        self,
        calculate: Callable[[int, Anchors, PixelTargets], Tensor],
        heads: Sequence[Sequence[Level]],
        targets: Tensor | PixelTargets,
    ) -> list[Tensor]:
        """Results for each head, the auxiliary one on its lane: it goes on there without waiting for the main part."""
        finest, _ = heads[0][0]
        pictures, _, rows, columns = finest.shape
        sizes = [(sides.shape[2], sides.shape[3]) for sides, _ in heads[0]]
        prepared = isinstance(targets, PixelTargets) and self._anchors.has(sizes, finest.device)
        with torch.autocast(finest.device.type, enabled=False):
            anchors = self._anchors.get(sizes, finest.device)
            if isinstance(targets, PixelTargets):
                real = targets
            else:
                size = round(rows * self.strides[0]), round(columns * self.strides[0])
                real = self.prepare(targets, pictures, size)
            last = len(heads) - 1
            # What is made here comes after the main part, so that the lane has to wait for that after all.
            lane = Lane(AUXILIARY, wanted=last > 0, fork=not prepared)
            with lane.run([real.labels, real.boxes, real.real]):
                beside = [calculate(number, anchors, real) for number in range(last)]
            own = calculate(last, anchors, real)
            lane.join(beside)
        return [*beside, own]

    def _heads(self, raw: Raw) -> list[list[Level]]:
        """Levels of each head in two parts: [main] or [auxiliary, main]."""
        heads = cast(list[Head], [raw] if isinstance(raw[0], Tensor) else raw)
        cut = 4 * self.bins
        return [[(m[:, :cut], m[:, cut:]) if isinstance(m, Tensor) else m for m in head] for head in heads]

    def _head_terms(
        self, levels: Sequence[Level], anchors: Anchors, targets: PixelTargets, score_sum: Tensor | None
    ) -> Tensor:
        """Box, class and distribution term (3,) of one head, with gains, divided by a sum of soft targets: its own
        unless one is given."""
        settings, head = self.settings, self._assign(levels, anchors, targets)
        sides, logits, assigned = head.sides, head.logits, head.slots
        score_sum = (assigned.soft.sum() if score_sum is None else score_sum).clamp(min=1)

        label = targets.labels.gather(1, assigned.targets)
        index = assigned.anchors * self.classes + label
        class_sum = class_term(logits.flatten(1), index, assigned.soft, settings.cls_pw, settings.fl_gamma)

        slots = assigned.soft, assigned.anchors, assigned.targets
        boxes = box_terms(sides, *slots, anchors.points, anchors.strides, targets.boxes)
        terms = boxes[0] * settings.box, class_sum * settings.cls, boxes[1] * settings.dfl
        return torch.stack(terms) / score_sum

    def _assign(self, levels: Sequence[Level], anchors: Anchors, targets: PixelTargets) -> _Head:
        """Joins the levels of one head and gives targets to its anchors."""
        # Pixels before channels: free of copying for channels-last maps, and a slot's values lie side by side.
        parts = zip(*levels, strict=True)
        sides, logits = (torch.cat([m.flatten(2).transpose(1, 2) for m in part], 1) for part in parts)
        boxes = predicted_boxes(sides.detach(), anchors.points, anchors.strides)
        return _Head(sides, logits, assign(logits.detach(), boxes, anchors.points, targets, self.settings))
