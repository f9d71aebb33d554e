"""Validation: predictions of a model on a split, compared with the labels."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yolov9.data.loader import Batch, Loader
from yolov9.engine.judge import Judge
from yolov9.engine.metrics import ClassScores, ConfusionMatrix, average_precision_per_class, match_detections
from yolov9.engine.out_of_memory import PREDICT_REMEDY, NoRoomError, explained
from yolov9.engine.parts_that_fit import PartsThatFit
from yolov9.loss import DetectionLoss, WholeBatch, pack_targets
from yolov9.model.head import RawMaps
from yolov9.ops.boxes import scale_boxes, xywh_to_xyxy
from yolov9.ops.nms import nms

Rows = NDArray[np.float32]
WatchBatch = Callable[[Batch, list[Rows]], None]


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """How predictions become detections."""

    conf: float = 0.001
    """Smallest confidence: low, so that the precision-recall curves reach their ends."""
    iou: float = 0.7
    """Overlap above which the weaker box of a class is dropped."""
    max_det: int = 300
    """Most detections of a picture."""
    single_cls: bool = False
    """Every detection has class 0, and boxes of different classes suppress each other."""


@dataclass(frozen=True)
class PictureResult:
    """Detections of one picture, kept when somebody writes them to files."""

    index: int
    """Number of the picture in the split."""
    rows: Rows
    """(n, 6) left, top, right, bottom in pixels of the original picture, score, class."""


@dataclass(frozen=True)
class ValidationResult:
    """Everything that a validation finds."""

    scores: ClassScores
    confusion: ConfusionMatrix
    losses: tuple[float, float, float]
    """Mean box, class and distribution loss; zeros when no loss was asked for."""
    pictures: int
    labels: int
    detections: list[PictureResult] = field(default_factory=list)

    @property
    def summary(self) -> tuple[float, float, float, float]:
        """Precision, recall, mAP at IoU 0.5, mAP at 0.5 to 0.95."""
        scores = self.scores
        return scores.mean_precision, scores.mean_recall, scores.map50, scores.map50_95


class ValidationStopped(Exception):
    """Somebody asked the program to stop while it validated."""


class ScoreKeeper:
    """Collects matches of picture after picture; numpy only.

    Args:
        classes: number of classes.
    """

    def __init__(self, classes: int) -> None:
        self.confusion = ConfusionMatrix(classes)
        self.pictures = 0
        self._correct: list[NDArray[np.bool_]] = []
        self._found: list[Rows] = []
        self._labels: list[Rows] = []

    def add(self, detections: Rows, labels: Rows) -> None:
        """Adds a picture.

        Args:
            detections: (n, 6) left, top, right, bottom, score, class; best score first.
            labels: (m, 5) class, left, top, right, bottom, in the same pixels.
        """
        self.pictures += 1
        self.confusion.add(detections, labels)
        self._correct.append(match_detections(detections, labels))
        self._found.append(detections[:, 4:6])
        self._labels.append(labels[:, 0])

    def scores(self) -> ClassScores:
        """Returns the scores of all pictures together."""
        found = np.concatenate(self._found) if self._found else np.zeros((0, 2), np.float32)
        correct = np.concatenate(self._correct) if self._correct else np.zeros((0, 10), np.bool_)
        return average_precision_per_class(correct, found[:, 0], found[:, 1], self.label_classes)

    @property
    def label_classes(self) -> Rows:
        """Class numbers of all labels so far."""
        return np.concatenate(self._labels) if self._labels else np.zeros(0, np.float32)


def validate(
    judge: Judge,
    loader: Loader,
    *,
    thresholds: Thresholds | None = None,
    keep_detections: bool = False,
    watch: WatchBatch | None = None,
    stop: Callable[[], bool] = lambda: False,
    make_room: Callable[[], object] = lambda: None,
    most_together: int | None = None,
) -> ValidationResult:
    """Runs a model over all pictures of a loader.

    Args:
        judge: the model, and whether its loss is wanted.
        loader: a loader in mode "val".
        thresholds: how predictions become detections; None: as published scores were made.
        keep_detections: return the detections of every picture.
        watch: is shown each batch and its detections in pixels of the network's picture, to draw them.
        stop: asked before each batch whether to leave.
        make_room: gives memory back that can be done without; called before one picture is given up.
        most_together: pictures that go through the network at a time; None: all of a batch.

    Raises:
        ValidationStopped: `stop` said so.
        NoRoomError: not even one picture fits.
    """
    thresholds = thresholds or Thresholds()
    keeper = ScoreKeeper(judge.model.nc)
    losses = torch.zeros(3, device=judge.precision.device)
    kept: list[PictureResult] = []
    batches = 0
    parts = PartsThatFit(judge.precision.device, "validation", make_room, most_together)
    for batch in loader.epoch(0):
        if stop():
            raise ValidationStopped
        try:
            with explained(judge.precision.device, "validation", PREDICT_REMEDY):
                found, items = _detect(judge, batch, thresholds, parts)
                losses += items
        except NoRoomError:
            batch.release()
            raise
        batches += 1
        if watch is not None:
            watch(batch, [rows.numpy() for rows in found])
        for number, (rows, labels) in enumerate(_in_original_pixels(batch, found)):
            keeper.add(rows, labels)
            if keep_detections:
                kept.append(PictureResult(int(batch.indices[number]), rows))
        batch.release()
    box, cls, dfl = (losses / max(batches, 1)).tolist()
    return ValidationResult(
        keeper.scores(), keeper.confusion, (box, cls, dfl), keeper.pictures, len(keeper.label_classes), kept
    )


@dataclass(frozen=True)
class _Part:
    """What the network says of a part of a batch."""

    found: list[Tensor]
    terms: Tensor | None
    """Loss terms (3,) where the part is the whole batch."""
    raw: RawMaps
    """Raw maps where it is not, for the loss of all parts together."""


@torch.inference_mode()
def _detect(judge: Judge, batch: Batch, thresholds: Thresholds, parts: PartsThatFit) -> tuple[list[Tensor], Tensor]:
    """Detections of each picture on the CPU, in pixels of the network's picture, and the loss terms (3,)."""
    pictures, device = len(batch.images), judge.precision.device
    table = pack_targets(batch.targets, pictures).to(device)

    def look(part: slice) -> _Part:
        images = batch.images[part].to(device, non_blocking=True)
        if len(images) == pictures:
            decoded, terms = judge(images, table)
            return _Part(_select(decoded, thresholds), terms, [])
        decoded, raw = judge.predict(images)
        return _Part(_select(decoded, thresholds), None, raw if judge.loss is not None else [])

    results = parts(look, pictures)
    found = [rows for result in results for rows in result.found]
    whole = results[0].terms
    if whole is not None:
        return found, whole
    if judge.loss is None:
        return found, torch.zeros(3, device=device)
    return found, _loss_terms(judge.loss, [result.raw for result in results], table, parts)


def _select(decoded: Tensor, thresholds: Thresholds) -> list[Tensor]:
    found = nms(
        decoded,
        thresholds.conf,
        thresholds.iou,
        agnostic=thresholds.single_cls,
        multi_label=True,
        max_det=thresholds.max_det,
    )
    rows = torch.cat(found)
    if thresholds.single_cls:
        rows[:, 5] = 0
    return list(torch.split(rows.cpu(), [len(part) for part in found]))


def _loss_terms(loss: DetectionLoss, raw: list[RawMaps], table: Tensor, parts: PartsThatFit) -> Tensor:
    """Loss terms of a batch whose raw maps lie in parts, which stay apart: joining them would take them twice."""
    pieces = list(zip(raw, torch.split(table, [len(levels[0]) for levels in raw]), strict=True))

    def add_up(work: Callable[[RawMaps, Tensor], Tensor]) -> Tensor:
        results: list[Tensor] = []
        for levels, rows in pieces:
            results += parts(partial(_of_part, work, levels, rows), len(rows))
        return torch.stack(results).sum(0)

    whole = WholeBatch(add_up(loss.score_sums), table.new_tensor(float(len(table))))
    return add_up(lambda levels, rows: loss(levels, rows, whole)[1])


def _of_part(work: Callable[[RawMaps, Tensor], Tensor], raw: RawMaps, table: Tensor, part: slice) -> Tensor:
    return work([level[part] for level in raw], table[part])


def _in_original_pixels(batch: Batch, found: list[Tensor]) -> Iterator[tuple[Rows, Rows]]:
    """Detections and labels of each picture of a batch, both in pixels of the original picture."""
    network_hw = (int(batch.images.shape[1]), int(batch.images.shape[2]))
    scale = torch.tensor([network_hw[1], network_hw[0], network_hw[1], network_hw[0]], dtype=torch.float32)
    for number, rows in enumerate(found):
        shape = batch.shapes[number]
        labels = batch.targets[batch.targets[:, 0] == number]
        boxes = xywh_to_xyxy(labels[:, 2:6] * scale)
        args = network_hw, shape.original_hw, shape.ratio_hw, shape.pad_wh
        moved = torch.cat((scale_boxes(rows[:, :4], *args), rows[:, 4:]), 1)
        label_rows = torch.cat((labels[:, 1:2], scale_boxes(boxes, *args)), 1)
        yield moved.numpy(), label_rows.numpy()
