"""Diagrams: files come out, names are shown as they are, nothing warns."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from yolov9.engine import plots
from yolov9.engine.batch_pictures import draw_predictions, draw_targets
from yolov9.engine.final_validation import best_note

ODD_NAMES = ["RBC", "白细胞", "_hidden_", "$\\frac{x}$", "हाथी", "{0} %s\nx"]


def _size(path: Path) -> tuple[int, int]:
    image = cv2.imread(str(path))
    assert image is not None
    assert image.std() > 1
    return image.shape[1], image.shape[0]


def test_results_of_a_real_run_are_drawn(parity_dir: Path, tmp_path: Path):
    curve = parity_dir / "curves" / "bccd-yolov9-s-seed0.csv"
    assert _size(plots.draw_results(curve, tmp_path / "results.png")) == (1950, 720)
    columns = plots.read_results(curve)
    assert len(columns["metrics/mAP_0.5"]) == 85
    assert set(plots.RESULT_COLUMNS) <= set(columns)


@pytest.mark.parametrize(
    "text", ["epoch,train/box_loss\n", "epoch, train/box_loss\n0, 1.5\n", "epoch,metrics/recall\n0,nan\n1,x\n"]
)
def test_short_and_damaged_tables_are_drawn(text: str, tmp_path: Path):
    (tmp_path / "results.csv").write_text(text)
    assert _size(plots.draw_results(tmp_path / "results.csv")) == (1950, 720)


def test_a_loss_with_a_peak_is_drawn_on_a_logarithmic_scale_and_a_score_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    drawn: list[Any] = []
    monkeypatch.setattr(plots, "_save", lambda figure, picture: drawn.extend(figure.axes) or picture)
    (tmp_path / "results.csv").write_text("epoch,val/cls_loss,metrics/recall\n0,1800,0.001\n1,4,0.2\n2,1,0.9\n")
    plots.draw_results(tmp_path / "results.csv")
    axes = dict(zip(plots.RESULT_COLUMNS, drawn, strict=True))
    assert axes["val/cls_loss"].get_yscale() == "log"
    assert axes["metrics/recall"].get_yscale() == "linear"


def test_results_count_epochs_from_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    drawn: list[Any] = []
    monkeypatch.setattr(plots, "_save", lambda figure, picture: drawn.extend(figure.axes) or picture)
    (tmp_path / "results.csv").write_text("epoch,train/box_loss\n0,2\n1,1\n")
    plots.draw_results(tmp_path / "results.csv")
    assert drawn[0].lines[0].get_xdata().tolist() == [1, 2]


@pytest.mark.parametrize("count", [0, 1, 6, 30])
def test_curves_with_names_that_mean_something_to_matplotlib(count: int, tmp_path: Path):
    x = np.linspace(0, 1, 100)
    rows = np.stack([x ** (k + 1) for k in range(count)]) if count else np.zeros((0, 100))
    names = [*ODD_NAMES, *(f"c{k}" for k in range(30))][:count]
    path = plots.draw_curve(x, rows, names, tmp_path / "F1_curve.png", x_label="confidence", y_label="F1")
    assert _size(path) == (1350, 900)


def test_the_best_confidence_is_that_of_the_mean_of_the_classes():
    curves = np.array([[0.9, 0.5, 0.1], [0.1, 0.7, 0.3]])
    assert best_note(np.array([0.0, 0.25, 0.5]), curves) == "best 0.60 at 0.25"
    assert best_note(np.zeros(3), np.zeros((0, 3))) == ""


@pytest.mark.parametrize("count", [1, 6, 80])
def test_confusion_matrix_of_any_size(count: int, tmp_path: Path):
    names = (ODD_NAMES + [f"c{k}" for k in range(80)])[:count]
    assert min(_size(plots.draw_confusion(np.eye(count + 1) * 9, names, tmp_path / "confusion_matrix.png"))) > 100


@pytest.mark.parametrize("count", [0, 200])
def test_labels_summary(count: int, tmp_path: Path):
    rng = np.random.default_rng(0)
    labels = np.concatenate([rng.integers(0, 6, (count, 1)), rng.random((count, 4))], 1)
    assert min(_size(plots.draw_labels(labels, ODD_NAMES, tmp_path / "labels.jpg"))) > 100


def test_names_that_would_overlap_under_the_bars_give_way_to_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    drawn: list[Any] = []
    monkeypatch.setattr(plots, "_save", lambda figure, picture: drawn.append(figure.axes[0]) or picture)
    for count in (20, 80):
        plots.draw_labels(np.full((3, 5), 0.5), [f"thing {number}" for number in range(count)], tmp_path / "labels.jpg")
    few, many = ([text.get_text() for text in axis.get_xticklabels()] for axis in drawn)
    assert few == [f"thing {number}" for number in range(20)]
    assert not any("thing" in text for text in many)


def test_targets_are_drawn_on_the_picture_they_belong_to(tmp_path: Path):
    images = np.full((2, 100, 200, 3), 114, np.uint8)
    targets = np.array([[1, 0, 0.5, 0.5, 0.5, 0.4]], np.float32)
    path = draw_targets(images, targets, ["thing"], tmp_path / "train_batch0.jpg")
    mosaic = cv2.imread(str(path)).astype(int)
    assert mosaic.shape == (160, 640, 3)
    left, right = mosaic[:, :318], mosaic[:, 320:638]
    drawn = np.abs(right - 114).sum(2) > 60  # JPEG blurs the colour of a thin line
    assert np.abs(left[:150, :310] - 114).max() < 12
    assert drawn[112].sum() > 140
    assert drawn[48:112, 80].sum() > 55


def test_weak_predictions_are_not_drawn(tmp_path: Path):
    images = np.full((1, 64, 64, 3), 114, np.uint8)
    rows = np.array([[10, 20, 50, 60, 0.2, 0]], np.float32)
    path = draw_predictions(images, [rows], ["thing"], tmp_path / "val_batch0_pred.jpg")
    assert np.abs(cv2.imread(str(path)).astype(int)[:55, :55] - 114).max() < 12


def test_small_pictures_are_enlarged_so_that_names_do_not_hide_them(tmp_path: Path):
    images = np.zeros((4, 64, 64, 3), np.uint8)
    path = draw_targets(images, np.zeros((0, 6), np.float32), ["x"], tmp_path / "train_batch0.jpg")
    assert cv2.imread(str(path)).shape == (640, 640, 3)


def test_a_large_batch_is_scaled_down(tmp_path: Path):
    images = np.zeros((20, 640, 640, 3), np.uint8)
    path = draw_targets(images, np.zeros((0, 6), np.float32), ["x"], tmp_path / "train_batch0.jpg")
    assert cv2.imread(str(path)).shape == (1920, 1920, 3)
