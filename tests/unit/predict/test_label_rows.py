"""Text of label files."""

import numpy as np

from yolov9.engine.label_rows import label_text


def test_rows_are_normalised_centres_and_sizes():
    rows = np.array([[10, 20, 30, 60, 0.5, 2], [0, 0, 100, 80, 0.25, 0]], np.float32)
    assert label_text(rows, (80, 100), with_scores=False) == "2 0.2 0.5 0.2 0.5\n0 0.5 0.5 1 1\n"
    assert label_text(rows[:1], (80, 100), with_scores=True) == "2 0.2 0.5 0.2 0.5 0.5\n"


def test_no_rows_are_an_empty_text():
    assert label_text(np.zeros((0, 6), np.float32), (8, 8), with_scores=True) == ""
