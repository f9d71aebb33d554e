"""Validation: predictions of a model on a split, compared with the labels."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yolov9.data.loader import Batch, Loader
from yolov9.engine.device_batch import to_unit_range
from yolov9.engine.metrics import ClassScores, ConfusionMatrix, average_precision_per_class, match_detections
from yolov9.engine.out_of_memory import NoRoomError
from yolov9.engine.parts_that_fit import PartsThatFit
from yolov9.engine.precision import Precision
from yolov9.loss import DetectionLoss, WholeBatch, pack_targets
from yolov9.model import DetectionModel
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
    model: DetectionModel,
    loader: Loader,
    *,
    precision: Precision,
    thresholds: Thresholds | None = None,
    loss: DetectionLoss | None = None,
    keep_detections: bool = False,
    watch: WatchBatch | None = None,
    stop: Callable[[], bool] = lambda: False,
    make_room: Callable[[], object] = lambda: None,
    most_together: int | None = None,
) -> ValidationResult:
    """Runs a model over all pictures of a loader.

    Args:
        model: in evaluation mode, on the device of `precision`.
        loader: a loader in mode "val".
        precision: device and number format.
        thresholds: how predictions become detections; None: as published scores were made.
        loss: also compute the loss of the main branch.
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
    keeper = ScoreKeeper(model.nc)
    losses = torch.zeros(3, device=precision.device)
    kept: list[PictureResult] = []
    batches = 0
    parts = PartsThatFit(precision.device, "validation", make_room, most_together)
    for batch in loader.epoch(0):
        if stop():
            raise ValidationStopped
        try:
            found, items = _detect(model, batch, precision, loss, thresholds, parts)
        except NoRoomError:
            batch.release()
            raise
        if items is not None:
            losses += items
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


@torch.inference_mode()
def _detect(
    model: DetectionModel,
    batch: Batch,
    precision: Precision,
    loss: DetectionLoss | None,
    thresholds: Thresholds,
    parts: PartsThatFit,
) -> tuple[list[Tensor], Tensor | None]:
    """Detections of each picture on the CPU, in pixels of the network's picture, and the loss terms."""

    def predict(part: slice) -> tuple[list[Tensor], list[Tensor]]:
        images = to_unit_range(batch.images[part].to(precision.device, non_blocking=True), precision.dtype)
        with precision.autocast():
            decoded, raw = model.predict_with_raw(images)
        return _select(decoded.float(), thresholds), list(raw) if loss is not None else []

    results = parts(predict, len(batch.images))
    found = [rows for some, _ in results for rows in some]
    if loss is None:
        return found, None
    table = pack_targets(batch.targets, len(batch.images)).to(precision.device)
    raw = [torch.cat(levels) for levels in zip(*(raw for _, raw in results), strict=True)]
    return found, _loss_terms(loss, raw, table, parts)


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


def _loss_terms(loss: DetectionLoss, raw: list[Tensor], table: Tensor, parts: PartsThatFit) -> Tensor:
    """Loss terms of a batch; those of its parts add up to the same."""

    def levels(part: slice) -> list[Tensor]:
        return [level[part] for level in raw]

    sums = parts(lambda part: loss.score_sums(levels(part), table[part]), len(table))
    whole = WholeBatch(torch.stack(sums).sum(0), table.new_tensor(float(len(table))))
    terms = parts(lambda part: loss(levels(part), table[part], whole)[1], len(table))
    return torch.stack(terms).sum(0)


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
