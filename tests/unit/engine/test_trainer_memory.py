"""Runs whose memory is full, in training or in validation."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from yolov9.engine import validate
from yolov9.engine.checkpoint import read_training_checkpoint
from yolov9.errors import ExitCode, UserError
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


@pytest.fixture
def failing_training(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], Exception | None]], None]:
    """`failing_training(fault)`: from the second batch of a run on, `fault(pictures)` says how a forward pass fails."""

    def fail(fault: Callable[[int], Exception | None]) -> None:
        levels, calls = DetectionModel.levels, []

        def limited(self: DetectionModel, images: torch.Tensor) -> Any:
            calls.append(len(images))
            error = fault(len(images)) if self.training and len(calls) > 1 else None
            if error is not None:
                raise error
            return levels(self, images)

        monkeypatch.setattr(DetectionModel, "levels", limited)

    return fail


def position_of(run_dir: Path) -> tuple[int, int]:
    progress = read_training_checkpoint(run_dir / "weights" / "last.pt")["training"]["progress"]
    return progress["epoch"], progress["batch"]


def rows_of(run_dir: Path) -> str:
    return (run_dir / "results.csv").read_text()


def test_a_training_that_no_longer_fits_keeps_what_came_before_and_can_go_on(
    tmp_path: Path, train: Train, finished_run: Path, monkeypatch: pytest.MonkeyPatch, failing_training: Any
) -> None:
    failing_training(lambda pictures: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    with pytest.raises(UserError, match="one picture does not fit"):
        train(tmp_path)
    assert position_of(tmp_path) == (0, 1)
    monkeypatch.undo()
    assert train(tmp_path, resume=str(tmp_path)) == ExitCode.DONE
    assert rows_of(tmp_path) == rows_of(finished_run)


def test_running_out_of_memory_writes_a_checkpoint_before_it_goes_on(
    tmp_path: Path, train: Train, failing_training: Any
) -> None:
    def fault(pictures: int) -> Exception:
        return torch.OutOfMemoryError("out of memory") if pictures > 2 else RuntimeError("the end comes now")

    failing_training(fault)
    with pytest.raises(RuntimeError, match="the end comes now"):
        train(tmp_path)
    assert position_of(tmp_path) == (0, 1)


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


def test_p12_memory_that_ends_beside_the_network_costs_scores_and_not_the_run(
    tmp_path: Path, train: Train, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(validate, "pack_targets", fail)
    assert train(tmp_path) == ExitCode.DONE
    assert "no scores for this epoch: validation does not fit" in caplog.text


def test_a_larger_micro_batch_is_noted_for_the_epoch_that_it_is_tried_in(
    tmp_path: Path, train: Train, failing_training: Any
) -> None:
    (tmp_path / "plan.json").write_text("{}")
    faults = [torch.OutOfMemoryError("out of memory")]
    failing_training(lambda pictures: faults.pop() if faults else None)
    assert train(tmp_path, epochs=4) == ExitCode.DONE
    events = json.loads((tmp_path / "plan.json").read_text())["memory_events"]
    assert [(event["epoch"], event["batch"], event["after"]) for event in events] == [(1, 2, 2), (4, 1, 4)]


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
