"""Confusion matrix of a validation: which class is detected as which. numpy only."""

import numpy as np
from numpy.typing import NDArray

from yolov9.engine.matching import FloatArray, box_overlaps

CONFIDENCE = 0.25
"""Detections count when their score is greater."""
OVERLAP = 0.45
"""A detection and a label belong together when their IoU is greater."""


class ConfusionMatrix:
    """Counts of predicted class (row) by true class (column); the last row and column are the background.

    Args:
        classes: number of classes.
    """

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.counts = np.zeros((classes + 1, classes + 1), np.int64)

    def add(self, detections: FloatArray, labels: FloatArray) -> None:
        """Counts one picture.

        Args:
            detections: (n, 6) left, top, right, bottom, score, class.
            labels: (m, 5) class, left, top, right, bottom.
        """
        detections = detections[detections[:, 4] > CONFIDENCE]
        found = detections[:, 5].astype(np.int64)
        true = labels[:, 0].astype(np.int64)
        partner = self._partners(detections[:, :4], labels[:, 1:])
        paired = partner >= 0
        missed = np.ones(len(true), np.bool_)
        missed[partner[paired]] = False
        background = self.classes
        rows = np.concatenate((found[paired], found[~paired], np.full(missed.sum(), background)))
        columns = np.concatenate((true[partner[paired]], np.full((~paired).sum(), background), true[missed]))
        cells = np.bincount(rows * (background + 1) + columns, minlength=self.counts.size)
        self.counts += cells.reshape(self.counts.shape)

    def _partners(self, boxes: FloatArray, label_boxes: FloatArray) -> NDArray[np.int64]:
        """Label of each detection, -1 for none: its best one, if no other detection that wants it overlaps it more."""
        partner = np.full(len(boxes), -1, np.int64)
        if len(boxes) == 0 or len(label_boxes) == 0:
            return partner
        overlaps = box_overlaps(boxes, label_boxes)
        wanted = overlaps.argmax(1)
        strength = overlaps[np.arange(len(boxes)), wanted]
        order = np.argsort(-strength, kind="stable")
        order = order[strength[order] > OVERLAP]
        _, first = np.unique(wanted[order], return_index=True)
        winners = order[first]
        partner[winners] = wanted[winners]
        return partner
