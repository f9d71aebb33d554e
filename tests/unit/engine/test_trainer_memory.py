"""Runs whose memory is full in validation."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from yolov9.engine.checkpoint import read_training_checkpoint
from yolov9.errors import ExitCode
from yolov9.model import DetectionModel

Train = Callable[..., ExitCode]


@pytest.fixture
def small_card(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """`small_card(2)`: validation of more than two pictures fails; returns how many it was asked for each time."""

    def fit(pictures: int) -> list[int]:
        predict, asked = DetectionModel.predict_with_raw, []

        def limited(self: DetectionModel, images: torch.Tensor) -> Any:
            asked.append(len(images))
            if len(images) > pictures:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return predict(self, images)

        monkeypatch.setattr(DetectionModel, "predict_with_raw", limited)
        return asked

    return fit


def scores_of(run_dir: Path) -> list[list[str]]:
    with (run_dir / "results.csv").open(newline="") as file:
        return [[row[name] for name in row if name.startswith("metrics/")] for row in csv.DictReader(file)]


def test_p12_a_validation_that_does_not_fit_is_done_in_halves_with_the_same_scores(
    tmp_path: Path, train: Train, finished_run: Path, small_card: Callable[[int], list[int]]
) -> None:
    asked = small_card(2)
    assert train(tmp_path) == ExitCode.DONE
    assert asked[:3] == [4, 2, 2]
    assert scores_of(tmp_path) == scores_of(finished_run)


def test_p12_a_validation_that_never_fits_costs_its_scores_and_not_the_run(
    tmp_path: Path, train: Train, small_card: Callable[[int], list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    small_card(0)
    assert train(tmp_path) == ExitCode.DONE
    assert "no scores for this epoch" in caplog.text
    assert "no final validation" in caplog.text
    assert [set(row) for row in scores_of(tmp_path)] == [{""}, {""}]
    assert read_training_checkpoint(tmp_path / "weights" / "last.pt")["training"]["progress"]["finished"]


def test_p12_the_checkpoint_is_written_before_the_validation(
    tmp_path: Path, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: DetectionModel, images: torch.Tensor) -> Any:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(DetectionModel, "predict_with_raw", broken)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        train(tmp_path)
    assert read_training_checkpoint(tmp_path / "weights" / "last.pt")["training"]["progress"]["batch"] == 3
