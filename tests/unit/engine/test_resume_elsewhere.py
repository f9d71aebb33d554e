"""P18: a run that is resumed, also under other conditions, is the same run, and each changed option is named."""

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from yolov9.engine.checkpoint import read_training_checkpoint
from yolov9.engine.logbook import Board
from yolov9.errors import ExitCode

Train = Callable[..., ExitCode]


def progress_of(run_dir: Path) -> dict[str, Any]:
    return read_training_checkpoint(run_dir / "weights" / "last.pt")["training"]["progress"]


def table(run_dir: Path) -> list[dict[str, str]]:
    with (run_dir / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def differing(first: Path, second: Path) -> list[str]:
    one, two = (read_training_checkpoint(run / "weights" / "last.pt") for run in (first, second))
    return [name for name in one["model"] if not torch.equal(one["model"][name], two["model"][name])]


@pytest.fixture(scope="module")
def six_epochs(tmp_path_factory: pytest.TempPathFactory, train: Train) -> Path:
    folder = tmp_path_factory.mktemp("six") / "run"
    train(folder, epochs=6)
    return folder


@pytest.fixture(scope="module")
def stopped_in_the_fourth(tmp_path_factory: pytest.TempPathFactory, train: Train) -> Path:
    """3 micro-batches an epoch and one validation batch: the 14th question whether to stop comes in epoch 4."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    assert train(folder, epochs=6, stop_after=14) == ExitCode.STOPPED_RESUMABLE
    progress = progress_of(folder)
    assert (progress["epoch"], 0 < progress["batch"] < 3) == (3, True)
    return folder


@pytest.fixture
def stopped(tmp_path: Path, stopped_in_the_fourth: Path) -> Path:
    return shutil.copytree(stopped_in_the_fourth, tmp_path / "elsewhere" / "run")


def test_p18_a_run_that_was_stopped_in_an_epoch_has_the_same_steps_rates_and_rows(
    stopped: Path, six_epochs: Path, train: Train
) -> None:
    # The run folder was moved meanwhile as well.
    assert train(stopped, epochs=6, resume=str(stopped)) == ExitCode.DONE
    assert differing(six_epochs, stopped) == []
    assert progress_of(six_epochs) == progress_of(stopped)
    assert table(six_epochs) == table(stopped)  # with the three learning rates of each epoch
    assert [row["epoch"] for row in table(stopped)] == list("012345")


@pytest.mark.parametrize("clock_goes_back", [False, True])
def test_p18_tensorboard_shows_each_epoch_once(
    stopped: Path, six_epochs: Path, train: Train, clock_goes_back: bool
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    if clock_goes_back:
        (former,) = stopped.glob("events.out.tfevents.*")
        former.rename(former.with_name("events.out.tfevents.9000000000.tomorrow.1"))
    train(stopped, epochs=6, resume=str(stopped))
    shown = []
    for run in (six_epochs, stopped):
        events = EventAccumulator(str(run))
        events.Reload()
        shown.append([(point.step, point.value) for point in events.Scalars("train/box_loss")])
    assert shown[0] == shown[1]
    assert [step for step, _ in shown[1]] == list(range(6))


def test_p18_tensorboard_hides_the_epochs_of_a_start_that_left_no_checkpoint(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for epochs in (3, 2):
        board = Board(tmp_path)
        for epoch in range(epochs):
            board.add(epoch, {"loss": float(epochs)})
        board.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(point.step, point.value) for point in events.Scalars("loss")] == [(0, 2.0), (1, 2.0)]


@pytest.mark.parametrize(
    ("changes", "line", "same_weights"),
    [
        ({"workers": 2}, "overridden  workers = 2 (was 0)", True),
        ({"batch_size": 2}, "overridden  batch_size = 2 (was 4)", False),
        ({"patience": 7}, "overridden  patience = 7 (was 100)", True),
        ({"amp": "off"}, "overridden  amp = off (was auto)", True),
        ({"seed": 5}, "refused     seed = 5: the run was started with 0", True),
        ({"optimizer": "AdamW"}, "refused     optimizer = AdamW: the run was started with SGD", True),
        ({"imgsz": 96}, "refused     imgsz = 96: the run was started with 64", True),
    ],
)
def test_p18_a_changed_option_is_named_and_what_makes_the_run_is_kept(
    stopped: Path,
    six_epochs: Path,
    train: Train,
    caplog: pytest.LogCaptureFixture,
    changes: dict[str, Any],
    line: str,
    same_weights: bool,
) -> None:
    caplog.set_level("INFO", logger="yolov9")
    assert train(stopped, epochs=6, resume=str(stopped), **changes) == ExitCode.DONE
    assert line in caplog.text
    assert "kept        epochs = 6" in caplog.text
    assert [row["epoch"] for row in table(stopped)] == list("012345")
    assert (differing(six_epochs, stopped) == []) == same_weights


def test_p18_a_data_set_that_was_moved(
    stopped: Path, six_epochs: Path, train: Train, tiny_data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="yolov9")
    moved = shutil.copytree(tiny_data.parent, stopped.parent / "moved") / "data.yaml"
    assert train(stopped, epochs=6, resume=str(stopped), data=str(moved)) == ExitCode.DONE
    assert f"overridden  data = {moved} (was {tiny_data})" in caplog.text
    assert "the training set has changed" not in caplog.text
    assert differing(six_epochs, stopped) == []


def test_p18_a_training_set_that_was_changed_is_told(
    stopped: Path, train: Train, tiny_data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changed = shutil.copytree(tiny_data.parent, stopped.parent / "changed") / "data.yaml"
    pictures = sorted((changed.parent / "images" / "train").iterdir())
    pictures[0].unlink()
    assert train(stopped, epochs=6, resume=str(stopped), data=str(changed)) == ExitCode.DONE
    assert f"it had {len(pictures)} pictures and has {len(pictures) - 1}" in caplog.text
    label = changed.parent / "labels" / "train" / f"{pictures[1].stem}.txt"
    label.write_text("0 0.5 0.5 0.25 0.25\n")
    assert train(stopped, epochs=7, resume=str(stopped), data=str(changed)) == ExitCode.DONE
    assert "its labels or pictures are others" in caplog.text


def test_p18_an_early_stopped_run_is_extended_over_the_new_total(tmp_path: Path, train: Train) -> None:
    train(tmp_path, epochs=1)
    content = read_training_checkpoint(tmp_path / "weights" / "last.pt")
    content["training"]["progress"].update(best_score=1.0, best_epoch=0)
    torch.save(content, tmp_path / "weights" / "last.pt")
    train(tmp_path, epochs=9, patience=2, resume=str(tmp_path))
    assert len(table(tmp_path)) == 3
    assert train(tmp_path, epochs=20, patience=4, resume=str(tmp_path)) == ExitCode.DONE
    rows = table(tmp_path)
    assert [row["epoch"] for row in rows] == list("01234")
    rates = [float(row["x/lr1"]) for row in rows]
    assert rates[3] > rates[2]  # 20 epochs: the rate falls more slowly than it was to in 9


def test_a_checkpoint_is_written_inside_an_epoch_when_its_time_has_come(
    tmp_path: Path, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    from yolov9.engine.checkpoint_writer import CheckpointWriter

    written: list[tuple[int, int]] = []
    submit = CheckpointWriter.submit

    def remember(self: CheckpointWriter, job: Any) -> None:
        if job.path.name == "last.pt":
            progress = job.content["training"]["progress"]
            written.append((progress["epoch"], progress["batch"]))
        submit(self, job)

    monkeypatch.setattr(CheckpointWriter, "submit", remember)
    train(tmp_path / "often", epochs=1, save_minutes=0)
    assert written == [(0, 1), (0, 2), (0, 3), (0, 3), (1, 0)]
    written.clear()
    train(tmp_path / "seldom", epochs=1)
    assert written == [(0, 3), (1, 0)]
