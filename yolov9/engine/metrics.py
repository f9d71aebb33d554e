"""Scores of a validation: precision, recall and average precision for each class. numpy only."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from yolov9.engine.confusion import ConfusionMatrix
from yolov9.engine.matching import IOU_LEVELS, match_detections

__all__ = [
    "IOU_LEVELS",
    "ClassScores",
    "ConfusionMatrix",
    "average_precision",
    "average_precision_per_class",
    "fitness",
    "match_detections",
    "smooth",
]

Floats = NDArray[np.float64]

CURVE_POINTS = 1000
"""Confidences from 0 to 1 at which the curves are given."""
RECALL_POINTS = 101
"""Recalls from 0 to 1 between which the precision curve is integrated, as in the COCO evaluation."""
SMOOTHING = 0.1
"""Width of the window, as a share of the curve, in which the best F1 is looked for."""
EPSILON = 1e-16
"""Keeps divisions by empty counts finite."""
FITNESS_SHARE_MAP50 = 0.1
"""Share of mAP50 in the number that the best checkpoint is chosen by; the rest is mAP50-95."""


@dataclass(frozen=True, kw_only=True)
class ClassScores:
    """Scores of the C classes that have labels, in rising order of class number."""

    classes: NDArray[np.int64]
    """(C,) class numbers."""
    labels: NDArray[np.int64]
    """(C,) number of labels of each class."""
    precision: Floats
    """(C,) at `confidence`, IoU 0.5."""
    recall: Floats
    """(C,) at `confidence`, IoU 0.5."""
    f1: Floats
    """(C,) at `confidence`, IoU 0.5."""
    true_positives: Floats
    """(C,) at `confidence`, IoU 0.5."""
    false_positives: Floats
    """(C,) at `confidence`, IoU 0.5."""
    average_precision: Floats
    """(C, levels) average precision at each IoU level."""
    confidence: float
    """Score at which the smoothed mean F1 is best."""
    precision_curve: Floats
    """(C, 1000) precision at IoU 0.5 by confidence."""
    recall_curve: Floats
    """(C, 1000) recall at IoU 0.5 by confidence."""
    f1_curve: Floats
    """(C, 1000) F1 at IoU 0.5 by confidence."""
    precision_by_recall: Floats
    """(C, 1000) precision at IoU 0.5 by recall."""

    @property
    def mean_precision(self) -> float:
        """Mean over the classes; 0 without any."""
        return _mean(self.precision)

    @property
    def mean_recall(self) -> float:
        """Mean over the classes; 0 without any."""
        return _mean(self.recall)

    @property
    def map50(self) -> float:
        """Mean average precision at IoU 0.5."""
        return _mean(self.average_precision[:, 0])

    @property
    def map50_95(self) -> float:
        """Mean average precision over all IoU levels."""
        return _mean(self.average_precision)

    @property
    def fitness(self) -> float:
        """The number that the best checkpoint is chosen by."""
        return fitness(self.map50, self.map50_95)


def fitness(map50: float, map50_95: float) -> float:
    """The number that the best checkpoint is chosen by: 0.1 mAP50 + 0.9 mAP50-95."""
    return FITNESS_SHARE_MAP50 * map50 + (1 - FITNESS_SHARE_MAP50) * map50_95


def average_precision_per_class(
    correct: NDArray[np.bool_],
    scores: NDArray[np.floating],
    classes: NDArray[np.generic],
    label_classes: NDArray[np.generic],
) -> ClassScores:
    """Scores of every class that has labels.

    Args:
        correct: (n, levels) table of `match_detections`, all pictures one after another.
        scores: (n,) scores of the detections.
        classes: (n,) their class numbers.
        label_classes: (m,) class numbers of all labels.
    """
    present, counts = np.unique(label_classes.astype(np.int64), return_counts=True)
    order = np.lexsort((-scores, classes))
    correct, scores, classes = correct[order], scores[order].astype(np.float64), classes[order].astype(np.int64)
    confidence = np.linspace(0, 1, CURVE_POINTS)
    shape = (len(present), CURVE_POINTS)
    precision, recall, by_recall = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    average = np.zeros((len(present), correct.shape[1]))
    starts, ends = np.searchsorted(classes, present, "left"), np.searchsorted(classes, present, "right")
    for i, (start, end, count) in enumerate(zip(starts, ends, counts, strict=True)):
        if start == end:
            continue
        hits = correct[start:end].cumsum(0)
        recalls = hits / (count + EPSILON)
        precisions = hits / np.arange(1, end - start + 1)[:, None]
        # np.interp wants rising abscissas; scores fall.
        falling = -scores[start:end]
        recall[i] = np.interp(-confidence, falling, recalls[:, 0], left=0)
        precision[i] = np.interp(-confidence, falling, precisions[:, 0], left=1)
        for level in range(correct.shape[1]):
            average[i, level] = average_precision(recalls[:, level], precisions[:, level])
        by_recall[i] = np.interp(confidence, *_envelope(recalls[:, 0], precisions[:, 0]))
    f1 = 2 * precision * recall / (precision + recall + EPSILON)
    best = int(smooth(f1.mean(0), SMOOTHING).argmax()) if len(present) else 0
    hits_at_best = (recall[:, best] * counts).round()
    return ClassScores(
        classes=present,
        labels=counts,
        precision=precision[:, best],
        recall=recall[:, best],
        f1=f1[:, best],
        true_positives=hits_at_best,
        false_positives=(hits_at_best / (precision[:, best] + EPSILON) - hits_at_best).round(),
        average_precision=average,
        confidence=float(confidence[best]),
        precision_curve=precision,
        recall_curve=recall,
        f1_curve=f1,
        precision_by_recall=by_recall,
    )


def average_precision(recall: Floats, precision: Floats) -> float:
    """Area under the precision envelope, which runs from (0, 1) to (1, 0).

    Trapezoids between 101 recalls, so a perfect result gives 0.995. (pycocotools takes the mean of a step function at
    the same recalls instead; its scores of small data sets are lower.)

    Args:
        recall: (n,) rising.
        precision: (n,) at these recalls.
    """
    points = np.linspace(0, 1, RECALL_POINTS)
    return float(np.trapezoid(np.interp(points, *_envelope(recall, precision)), points))


def _envelope(recall: Floats, precision: Floats) -> tuple[Floats, Floats]:
    """Recalls from 0 to 1 and the best precision reached at each or at a greater one."""
    ends = np.concatenate(([1.0], precision, [0.0]))
    return np.concatenate(([0.0], recall, [1.0])), np.maximum.accumulate(ends[::-1])[::-1]


def smooth(values: Floats, share: float) -> Floats:
    """Moving average with a window of `share` x 2 of the length, the ends continued as they are.

    The result has as many values as the input when the window is odd, else one more.
    """
    window = round(len(values) * share * 2) // 2 + 1
    half = window // 2
    padded = np.concatenate((np.full(half, values[0]), values, np.full(half, values[-1])))
    return np.convolve(padded, np.ones(window) / window, mode="valid")


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else 0.0
