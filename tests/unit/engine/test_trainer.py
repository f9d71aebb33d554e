"""Whole runs of seconds on the CPU: files, resume, stop."""

import csv
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from yolov9.config.environment import read_environment
from yolov9.engine import heartbeat
from yolov9.engine.checkpoint import read_training_checkpoint
from yolov9.engine.heartbeat import Beat, heartbeat_file, read_heartbeat
from yolov9.engine.host_copy import all_finite
from yolov9.engine.logbook import COLUMNS
from yolov9.engine.stop import StopRequest
from yolov9.errors import ExitCode, UserError
from yolov9.loss import DetectionLoss
from yolov9.model import load_weights, read_checkpoint

Train = Callable[..., ExitCode]


def rows_of(run_dir: Path) -> list[dict[str, str]]:
    with (run_dir / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def tensors_of(content: dict[str, Any]) -> dict[str, torch.Tensor]:
    flat = {f"{part}.{name}": value for part in ("model", "ema") for name, value in content[part].items()}
    for name, state in content["training"]["optimizer"]["state"].items():
        flat.update({f"{name}.{key}": value for key, value in state.items()})
    return flat


def assert_same_run(first: Path, second: Path) -> None:
    one, two = (read_training_checkpoint(run / "weights" / "last.pt") for run in (first, second))
    assert one["training"]["progress"] == two["training"]["progress"]
    assert one["training"]["ema_updates"] == two["training"]["ema_updates"]
    a, b = tensors_of(one), tensors_of(two)
    assert a.keys() == b.keys()
    assert [name for name in a if not torch.equal(a[name], b[name])] == []
    assert rows_of(first) == rows_of(second)


def test_a_run_leaves_the_files_that_people_know(finished_run: Path) -> None:
    names = {path.name for path in finished_run.rglob("*") if path.is_file()}
    assert {"last.pt", "best.pt", "results.csv", "opt.yaml", "hyp.yaml", "results.png", "confusion_matrix.png"} <= names
    assert {"PR_curve.png", "train_batch0.jpg", "val_batch0_pred.jpg", "val_batch0_labels.jpg", "labels.jpg"} <= names
    assert any(name.startswith("events.out.tfevents") for name in names)


def test_results_have_one_row_an_epoch_with_the_known_columns(finished_run: Path) -> None:
    rows = rows_of(finished_run)
    assert tuple(rows[0]) == COLUMNS
    assert [row["epoch"] for row in rows] == ["0", "1"]
    assert all(float(row["train/box_loss"]) > 0 and float(row["val/box_loss"]) > 0 for row in rows)


def test_best_holds_half_weights_and_no_training_state(finished_run: Path) -> None:
    content = torch.load(finished_run / "weights" / "best.pt", weights_only=True)
    assert content["training"] is None
    assert content["ema"] is None
    assert {v.dtype for v in content["model"].values() if v.is_floating_point()} == {torch.float16}
    assert load_weights(finished_run / "weights" / "best.pt").names == ["blue", "green", "red"]


def test_a_reader_of_last_gets_the_average(finished_run: Path) -> None:
    path = finished_run / "weights" / "last.pt"
    average = read_training_checkpoint(path)["ema"]
    read = read_checkpoint(path).state_dict
    assert all(torch.equal(read[name], average[name]) for name in average)


@pytest.mark.parametrize("stop_after", [1, 2, 3, 4])
def test_a_stopped_and_resumed_run_is_the_same_run(
    tmp_path: Path, train: Train, finished_run: Path, stop_after: int
) -> None:
    # 3 micro-batches an epoch: between two optimizer steps, at the end of an epoch, and before the validation.
    assert train(tmp_path, stop_after=stop_after) == ExitCode.STOPPED_RESUMABLE
    assert train(tmp_path, resume=str(tmp_path / "weights" / "last.pt")) == ExitCode.DONE
    assert_same_run(finished_run, tmp_path)


def test_a_run_can_be_stopped_again_and_again(tmp_path: Path, train: Train, finished_run: Path) -> None:
    assert train(tmp_path, stop_after=2) == ExitCode.STOPPED_RESUMABLE
    stops = 1
    while train(tmp_path, stop_after=2, resume=str(tmp_path)) == ExitCode.STOPPED_RESUMABLE:
        stops += 1
        assert stops < 20
    assert stops >= 3
    assert_same_run(finished_run, tmp_path)


def test_gradients_that_wait_for_their_step_are_saved(tmp_path: Path, train: Train) -> None:
    # With 20 micro-batches a step to come, warm-up asks for 2 from the fourth on: the run is stopped between the two.
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    train(straight, optimisation_batch=80)
    assert train(broken, optimisation_batch=80, stop_after=5) == ExitCode.STOPPED_RESUMABLE
    assert read_training_checkpoint(broken / "weights" / "last.pt")["training"]["gradients"]
    train(broken, optimisation_batch=80, resume=str(broken))
    assert_same_run(straight, broken)


@pytest.mark.parametrize("optimizer", ["AdamW", "LION"])
def test_every_optimizer_resumes_exactly(tmp_path: Path, train: Train, optimizer: str) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    train(straight, optimizer=optimizer)
    train(broken, optimizer=optimizer, stop_after=3)
    train(broken, optimizer=optimizer, resume=str(broken))
    assert_same_run(straight, broken)


def test_loader_workers_do_not_change_the_run(tmp_path: Path, train: Train, finished_run: Path) -> None:
    train(tmp_path, workers=2)
    assert_same_run(finished_run, tmp_path)


def test_a_finished_run_is_not_resumed_unless_it_is_extended(tmp_path: Path, train: Train, finished_run: Path) -> None:
    with pytest.raises(UserError, match="finished"):
        train(tmp_path, resume=str(finished_run))
    run = shutil.copytree(finished_run, tmp_path / "run")
    assert train(run, epochs=3, resume=str(run)) == ExitCode.DONE
    assert [row["epoch"] for row in rows_of(run)] == ["0", "1", "2"]


def test_resume_with_another_batch_keeps_the_pictures_per_step(tmp_path: Path, train: Train) -> None:
    train(tmp_path, stop_after=5)
    before = read_training_checkpoint(tmp_path / "weights" / "last.pt")["training"]
    assert train(tmp_path, resume=str(tmp_path), batch_size=2) == ExitCode.DONE
    after = read_training_checkpoint(tmp_path / "weights" / "last.pt")["training"]
    assert (before["pictures_per_step"], before["batch"]) == (8, 4)
    assert (after["pictures_per_step"], after["batch"]) == (8, 2)


def test_a_damaged_last_falls_back_to_the_generation_before(tmp_path: Path, train: Train, finished_run: Path) -> None:
    train(tmp_path, stop_after=5)
    last = tmp_path / "weights" / "last.pt"
    last.write_bytes(last.read_bytes()[:-2000])
    assert train(tmp_path, resume=str(tmp_path)) == ExitCode.DONE
    assert_same_run(finished_run, tmp_path)


def test_patience_ends_a_run(tmp_path: Path, train: Train) -> None:
    # Nothing is learned in so few steps, and equal scores count as better: the first epoch is forced to be the best.
    train(tmp_path, epochs=1)
    content = read_training_checkpoint(tmp_path / "weights" / "last.pt")
    content["training"]["progress"].update(best_score=1.0, best_epoch=0)
    torch.save(content, tmp_path / "weights" / "last.pt")
    assert train(tmp_path, epochs=9, patience=2, resume=str(tmp_path)) == ExitCode.DONE
    assert [row["epoch"] for row in rows_of(tmp_path)] == ["0", "1", "2"]


def test_nosave_writes_last_at_the_end_only(tmp_path: Path, train: Train) -> None:
    train(tmp_path, nosave=True)
    assert sorted(path.name for path in (tmp_path / "weights").iterdir()) == ["last.pt"]


def test_noval_validates_the_last_epoch_only(tmp_path: Path, train: Train) -> None:
    train(tmp_path, noval=True)
    assert [row["metrics/mAP_0.5"] == "" for row in rows_of(tmp_path)] == [True, False]


def test_save_period_keeps_weights_of_epochs(tmp_path: Path, train: Train) -> None:
    train(tmp_path, save_period=1)
    assert load_weights(tmp_path / "weights" / "epoch1.pt").nc == 3


def test_frozen_layers_keep_their_weights(tmp_path: Path, train: Train, finished_run: Path) -> None:
    train(tmp_path / "start", epochs=1, stop_after=1, optimisation_batch=400)
    train(tmp_path / "run", freeze=[2])
    start, free, frozen = (
        read_training_checkpoint(run / "weights" / "last.pt")["model"]
        for run in (tmp_path / "start", finished_run, tmp_path / "run")
    )
    changed = {
        name: (not torch.equal(start[name], free[name]), not torch.equal(start[name], frozen[name]))
        for name in ("model.1.conv.weight", "model.2.conv.weight")
    }
    assert changed == {"model.1.conv.weight": (True, False), "model.2.conv.weight": (True, True)}


def test_multi_scale_trains(tmp_path: Path, train: Train) -> None:
    assert train(tmp_path, epochs=1, multi_scale=True) == ExitCode.DONE


def test_rectangular_batches_train(tmp_path: Path, train: Train) -> None:
    assert train(tmp_path, epochs=1, rect=True) == ExitCode.DONE


def test_single_cls_has_one_class(tmp_path: Path, train: Train) -> None:
    train(tmp_path, epochs=1, single_cls=True)
    assert load_weights(tmp_path / "weights" / "best.pt").nc == 1


def test_weights_of_another_run_start_a_new_one(tmp_path: Path, train: Train, finished_run: Path) -> None:
    assert train(tmp_path, epochs=1, cfg="", weights=str(finished_run / "weights" / "best.pt")) == ExitCode.DONE


def test_missing_weights_are_a_user_error(tmp_path: Path, train: Train) -> None:
    with pytest.raises(UserError, match=r"nowhere\.pt"):
        train(tmp_path, weights="nowhere.pt")


def test_a_run_folder_that_cannot_be_made_is_a_user_error(tmp_path: Path, train: Train) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError) as caught:
        train(tmp_path / "file" / "run")
    assert caught.value.exit_code == ExitCode.OUTPUT_NOT_WRITABLE


def test_nothing_is_written_into_the_data_set(finished_run: Path, tiny_data: Path) -> None:
    assert {path.suffix for path in tiny_data.parent.rglob("*") if path.is_file()} == {".png", ".txt", ".yaml"}


def test_a_stop_in_the_final_validation_ends_a_finished_run(
    tmp_path: Path, train: Train, caplog: pytest.LogCaptureFixture
) -> None:
    asked_in_both_epochs = 2 * (3 + 1)
    assert train(tmp_path, stop_after=asked_in_both_epochs + 1) == ExitCode.DONE
    assert "no final validation: a stop was asked for" in caplog.text
    assert read_training_checkpoint(tmp_path / "weights" / "last.pt")["training"]["progress"]["finished"]


def test_close_mosaic_longer_than_the_run_is_said(
    tmp_path: Path, train: Train, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="yolov9")
    train(tmp_path, epochs=1, close_mosaic=15)
    assert "mosaic is off from the start" in caplog.text


class Listener(StopRequest):
    """Never stops; each time it is asked it reads the heartbeat of this process."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Beat | None] = []

    @property
    def requested(self) -> bool:
        self.heard.append(read_heartbeat(heartbeat_file(read_environment(), os.getpid())))
        return False

    @requested.setter
    def requested(self, value: bool) -> None:
        pass


def test_each_batch_leaves_a_sign_of_life_that_is_gone_after_the_run(
    tmp_path: Path, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(heartbeat, "WRITE_INTERVAL_S", 0.0)
    listener = Listener()
    assert train(tmp_path / "run", stop=listener) == ExitCode.DONE
    heard = [(beat.steps, beat.doing) for beat in listener.heard if beat is not None]
    assert (1, "training, epoch 1, batch 1") in heard
    assert (6, "training, epoch 2, batch 3") in heard
    assert None not in listener.heard
    assert not list(tmp_path.glob("yolov9-heartbeat*"))


def test_p36_a_gpu_that_fails_has_an_exit_code_of_its_own_and_the_run_goes_on_from_the_last_checkpoint(
    tmp_path: Path, train: Train, finished_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There is no GPU here that could fail: the loss of the second epoch raises what PyTorch raises then.
    calls = iter(range(100))
    forward = DetectionLoss.__call__

    def failing(self: DetectionLoss, *arguments: Any) -> Any:
        if next(calls) == 4:
            raise RuntimeError("CUDA error: unspecified launch failure\nSearch for `cudaErrorLaunchFailure' …")
        return forward(self, *arguments)

    monkeypatch.setattr(DetectionLoss, "__call__", failing)
    with pytest.raises(UserError, match="unspecified launch failure") as caught:
        train(tmp_path)
    assert caught.value.exit_code == ExitCode.GPU_FAILED
    assert "--resume" in caught.value.remedy
    monkeypatch.undo()
    assert train(tmp_path, resume=str(tmp_path)) == ExitCode.DONE
    assert_same_run(finished_run, tmp_path)


def test_p14_a_training_that_diverges_stops_and_leaves_finite_weights(tmp_path: Path, train: Train) -> None:
    recipe = tmp_path / "steep.yaml"
    recipe.write_text("lr0: 1.0e+30\nwarmup_bias_lr: 1.0e+30\n")
    train(tmp_path / "run", epochs=1)
    with pytest.raises(UserError, match=r"diverged|not finite"):
        train(tmp_path / "run", hyp=str(recipe), epochs=40)
    for name in ("last.pt", "best.pt"):
        content = torch.load(tmp_path / "run" / "weights" / name, weights_only=True)
        assert all_finite(content["model"]), name


def test_a_checkpoint_whose_tensors_do_not_fit_its_graph_is_bad_data(tmp_path: Path, train: Train) -> None:
    train(tmp_path, epochs=1)
    last = tmp_path / "weights" / "last.pt"
    content = read_training_checkpoint(last)
    content["ema"]["model.0.conv.weight"] = torch.zeros(1)
    torch.save(content, last)
    with pytest.raises(UserError, match=r"model\.0\.conv\.weight|state_dict") as caught:
        train(tmp_path, epochs=2, resume=str(last))
    assert caught.value.exit_code == ExitCode.BAD_DATA


@pytest.mark.parametrize("stop_after", [3, 5])
def test_stages_are_one_run_also_across_a_stop_at_or_behind_the_border(
    tmp_path: Path, train: Train, stop_after: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="yolov9")
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    changes = {"stages": "32:1,64:1", "close_mosaic": 1}
    assert train(straight, **changes) == ExitCode.DONE
    assert "epoch 1: pictures of 32 px" in caplog.text
    assert "epoch 2: pictures of 64 px" in caplog.text
    assert train(broken, stop_after=stop_after, **changes) == ExitCode.STOPPED_RESUMABLE
    assert train(broken, resume=str(broken), **changes) == ExitCode.DONE
    assert_same_run(straight, broken)


def test_growing_steps_are_the_same_after_a_stop(tmp_path: Path, train: Train) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    changes = {"dynamic_accumulate": "1:3", "epochs": 3}
    assert train(straight, **changes) == ExitCode.DONE
    assert train(broken, stop_after=7, **changes) == ExitCode.STOPPED_RESUMABLE
    assert train(broken, resume=str(broken), **changes) == ExitCode.DONE
    assert_same_run(straight, broken)
    # 3 batches an epoch; 1, 2 and 3 batches a step.
    assert read_training_checkpoint(straight / "weights" / "last.pt")["training"]["progress"]["optimizer_steps"] == 5
