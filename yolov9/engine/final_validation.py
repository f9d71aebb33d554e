"""The last validation of a run: best.pt as it will be used, with a table of classes and diagrams."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from yolov9.data.loader import Batch
from yolov9.engine.batch_pictures import draw_predictions, draw_targets
from yolov9.engine.checkpoint import BEST, LAST
from yolov9.engine.heartbeat import Heartbeat
from yolov9.engine.judge import Judge
from yolov9.engine.optional_file import optional_file
from yolov9.engine.plots import draw_confusion, draw_curve
from yolov9.engine.precision import validation_precision
from yolov9.engine.session import Session
from yolov9.engine.validate import Rows, ValidationResult, validate
from yolov9.logs import LOG
from yolov9.model import for_inference, load_weights

DRAWN_BATCHES = 3
"""Validation batches that are drawn with labels and with detections."""


def validate_final(
    session: Session, heart: Heartbeat, *, draw: bool, stop: Callable[[], bool] = lambda: False
) -> ValidationResult:
    """Validates best.pt, or last.pt when there is none, in the form that detection uses.

    Args:
        session: the run; its checkpoints are complete.
        heart: is told about each finished batch.
        draw: also draw curves, confusion matrix and some batches.
        stop: asked before each batch whether to leave.

    Raises:
        ValidationStopped: `stop` said so.
    """
    context = session.context
    assert session.val_loader is not None, "the first rank validates"
    path = context.weights_dir / BEST
    if not path.exists():
        path = context.weights_dir / LAST
    precision = validation_precision(context.precision)
    model = for_inference(load_weights(path), precision.device, precision.dtype)
    pictures = BatchPictures(context.run_dir, model.names) if draw else None

    def watch(batch: Batch, found: list[Rows]) -> None:
        heart.beat("final validation")
        if pictures is not None:
            pictures(batch, found)

    result = validate(Judge(model, precision), session.val_loader, watch=watch, stop=stop)
    LOG.info("final validation of %s", path)
    for line in class_table(result, model.names):
        LOG.info("%s", line)
    if draw:
        with optional_file(f"a diagram in {context.run_dir}"):
            draw_diagrams(result, model.names, context.run_dir)
    return result


class BatchPictures:
    """Draws the first batches of a validation, with labels and with detections.

    Args:
        folder: run folder.
        names: class names.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder
        self._names = names
        self._drawn = 0

    def __call__(self, batch: Batch, found: list[Rows]) -> None:
        """Draws one batch unless enough are drawn."""
        if self._drawn >= DRAWN_BATCHES:
            return
        images, targets = batch.images.numpy(), batch.targets.numpy()
        stem = self._folder / f"val_batch{self._drawn}"
        with optional_file(f"{stem}_*.jpg"):
            draw_targets(images, targets, self._names, stem.with_name(f"{stem.name}_labels.jpg"))
            draw_predictions(images, found, self._names, stem.with_name(f"{stem.name}_pred.jpg"))
        self._drawn += 1


def class_table(result: ValidationResult, names: Sequence[str]) -> list[str]:
    """Returns the lines of a table: all classes together, then each class that has labels."""
    scores = result.scores
    width = max([len("class"), *(len(names[number]) for number in scores.classes)])
    lines = [f"{'class':>{width}} {'labels':>8} {'P':>8} {'R':>8} {'mAP50':>8} {'mAP50-95':>9}"]
    overall = (result.labels, *result.summary)
    rows = [("all", overall)]
    for number, labels, precision, recall, average in zip(
        scores.classes, scores.labels, scores.precision, scores.recall, scores.average_precision, strict=True
    ):
        rows.append((names[number], (int(labels), precision, recall, average[0], average.mean())))
    for name, (count, precision, recall, map50, map50_95) in rows:
        lines.append(f"{name:>{width}} {count:>8} {precision:>8.3f} {recall:>8.3f} {map50:>8.3f} {map50_95:>9.3f}")
    return lines


def draw_diagrams(result: ValidationResult, names: Sequence[str], folder: Path) -> None:
    """Draws the curves of precision, recall and F1, and the confusion matrix."""
    scores = result.scores
    shown = [names[number] for number in scores.classes]
    axis = np.linspace(0, 1, scores.precision_curve.shape[1])
    by_confidence = (
        ("P_curve.png", scores.precision_curve, "precision", ""),
        ("R_curve.png", scores.recall_curve, "recall", ""),
        ("F1_curve.png", scores.f1_curve, "F1", best_note(axis, scores.f1_curve)),
    )
    for file, curve, label, note in by_confidence:
        draw_curve(axis, curve, shown, folder / file, x_label="confidence", y_label=label, mean_note=note)
    draw_curve(
        axis,
        scores.precision_by_recall,
        shown,
        folder / "PR_curve.png",
        x_label="recall",
        y_label="precision",
        notes=[f"AP50 {value:.3f}" for value in scores.average_precision[:, 0]],
        mean_note=f"mAP50 {scores.map50:.3f}",
    )
    draw_confusion(result.confusion.counts.astype(np.float64), names, folder / "confusion_matrix.png")


def best_note(confidence: NDArray[np.floating], curves: NDArray[np.floating]) -> str:
    """Says where the mean of curves is highest, which is a confidence to detect with.

    Args:
        confidence: (k,) horizontal axis.
        curves: (n, k) one per class; n may be 0, and the text is then empty.
    """
    if not len(curves):
        return ""
    mean = curves.mean(0)
    return f"best {mean.max():.2f} at {confidence[mean.argmax()]:.2f}"
