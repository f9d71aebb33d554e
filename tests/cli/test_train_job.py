"""A whole training through the entrypoint, on a tiny set: results, stop, resume."""

import csv
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from yolov9.engine.checkpoint import read_training_checkpoint

Started = Callable[..., AbstractContextManager["subprocess.Popen[str]"]]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
TINY = ("--cfg", "yolov9-t", "--img", "64", "--batch", "4", "--noplots", "--device", "cpu")


def fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(str(path).encode() + (path.read_bytes() if path.is_file() else b""))
    return digest.hexdigest()


def epochs(run_dir: Path) -> list[int]:
    with (run_dir / "results.csv").open() as file:
        return [int(row["epoch"]) for row in csv.DictReader(file, skipinitialspace=True)]


def test_p01_p31_two_epochs_leave_results_a_plan_and_an_untouched_data_set(
    run: Run, tmp_path: Path, tiny_set: Path
) -> None:
    before = fingerprint(tiny_set.parent)
    done = run("train", "--data", str(tiny_set), *TINY, "--epochs", "2", "--workers", "4", timeout_s=280)
    assert done.returncode == 0, done.stderr
    run_dir = tmp_path / "runs" / "train" / "exp"
    assert (run_dir / "weights" / "best.pt").is_file()
    assert (run_dir / "weights" / "last.pt").is_file()
    plan = json.loads((run_dir / "plan.json").read_text())
    assert plan["settings"]["batch_size"] == 4
    assert plan["run_dir"] == str(run_dir)
    assert epochs(run_dir) == [0, 1]
    assert fingerprint(tiny_set.parent) == before
    assert "Traceback" not in done.stderr
    assert "\r" not in done.stderr


@pytest.fixture
def long_job(tmp_path: Path, clean_environment: dict[str, str], tiny_set: Path) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "entrypoint", "train", "--data", str(tiny_set), *TINY, "--epochs", "1000"],
        cwd=tmp_path,
        env=clean_environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()


def test_p17_a_stopped_run_is_resumable_and_ends(run: Run, tmp_path: Path, long_job: "subprocess.Popen[str]") -> None:
    run_dir = tmp_path / "runs" / "train" / "exp"
    assert long_job.stderr is not None
    for line in long_job.stderr:
        if (run_dir / "results.csv").is_file() and "epoch" in line:
            break
    long_job.send_signal(signal.SIGTERM)
    rest = long_job.stderr.read()
    assert long_job.wait(60) == 75, rest
    assert f"to go on from the last checkpoint: train --resume {run_dir}" in rest
    reached = epochs(run_dir)
    target = reached[-1] + 3
    done = run("train", "--resume", "--epochs", str(target), timeout_s=200)
    assert done.returncode == 0, done.stderr
    assert epochs(run_dir) == list(range(target))


def test_a_trainer_that_was_killed_is_followed_by_what_goes_on_with_its_run(
    tmp_path: Path, long_job: "subprocess.Popen[str]"
) -> None:
    assert long_job.stderr is not None
    for line in long_job.stderr:
        if "epoch 2/" in line:
            break
    (trainer,) = Path(f"/proc/{long_job.pid}/task/{long_job.pid}/children").read_text().split()
    os.kill(int(trainer), signal.SIGKILL)
    rest = long_job.stderr.read()
    assert long_job.wait(60) == 137, rest
    assert f"to go on from the last checkpoint: train --resume {tmp_path}/runs/train/exp" in rest


def test_p17_a_stop_while_the_machine_is_read_ends_it_as_any_stop_does(run: Run, tmp_path: Path) -> None:
    script = """
import signal, sys
from entrypoint import __main__, prepare
prepare.read_facts = lambda *words: signal.raise_signal(signal.SIGTERM)
sys.exit(__main__.run(["train", "--device", "cpu"]))
"""
    done = run(program=("-c", script))
    assert done.returncode == 75, done.stderr
    assert done.stderr == ""
    assert list((tmp_path / "runs/train").iterdir()) == []


def test_p17_a_stop_while_the_trainer_starts_ends_it_as_any_stop_does(tiny_set: Path, started: Started) -> None:
    with started("train", "--data", str(tiny_set), *TINY) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "results: " in line:
                break
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(60) == 75, rest
        assert "--resume" not in rest


def test_a_refused_resumption_leaves_the_plan_of_the_run_as_it_was(run: Run, tmp_path: Path) -> None:
    weights = tmp_path / "runs" / "train" / "exp" / "weights"
    weights.mkdir(parents=True)
    (weights / "last.pt").write_bytes(b"cut off")
    plan = weights.parent / "plan.json"
    plan.write_text('{"request": {}}')
    done = run("train", "--resume", "--epochs", "9", "--cfg", "gelan-t", "--img", "64", "--device", "cpu")
    assert done.returncode == 65, done.stderr
    assert plan.read_text() == '{"request": {}}'


def test_continue_starts_goes_on_after_a_kill_and_does_nothing_after_the_end(
    run: Run, tmp_path: Path, tiny_set: Path, started: Started
) -> None:
    words = ("train", "--data", str(tiny_set), *TINY, "--epochs", "12", "--name", "job", "--continue")
    run_dir = tmp_path / "runs" / "train" / "job"
    with started(*words) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "epoch 3/12" in line:
                break
        process.kill()
        process.stderr.read()  # The orphaned trainer saves and ends; nobody else may write there meanwhile.
    reached = epochs(run_dir)[-1]
    done = run(*words, timeout_s=200)
    assert done.returncode == 0, done.stderr
    assert "resuming" in done.stderr
    assert reached >= 1
    assert epochs(run_dir) == list(range(12))
    assert [path.name for path in run_dir.parent.iterdir()] == ["job"]
    before = fingerprint(run_dir / "weights")
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert "is finished" in done.stderr
    assert fingerprint(run_dir / "weights") == before


def test_parts_of_a_step_make_the_same_training_as_the_whole_step(run: Run, tmp_path: Path, tiny_set: Path) -> None:
    graph = Path(__file__).parents[1] / "unit" / "engine" / "tiny-graph.yaml"
    common = ("--data", str(tiny_set), "--cfg", str(graph), "--img", "64", "--noplots", "--device", "cpu")
    steps = []
    for name, options in (("parts", ("--batch", "2", "--accumulate", "4")), ("whole", ("--batch", "8"))):
        done = run("train", *common, *options, "--optimizer", "SGD", "--epochs", "3", "--name", name, timeout_s=200)
        assert done.returncode == 0, done.stderr
        training = read_training_checkpoint(tmp_path / "runs" / "train" / name / "weights" / "last.pt")["training"]
        steps.append((training["batch"], training["batches_per_epoch"], training["progress"]["optimizer_steps"]))
    assert steps[0] == steps[1] == (8, 1, 3)
    plan = json.loads((tmp_path / "runs" / "train" / "parts" / "plan.json").read_text())
    assert (plan["settings"]["batch_size"], plan["settings"]["micro_batch"]) == (8, 2)


def test_a_stop_while_the_trainer_gets_ready_does_not_wait_for_it(
    started: Started, tiny_set: Path, tmp_path: Path, clean_environment: dict[str, str]
) -> None:
    compiler, begun = tmp_path / "bin" / "cc", tmp_path / "begun"
    compiler.parent.mkdir()
    compiler.write_text(f"#!/bin/sh\ntouch {begun}\nexec sleep 1000\n")
    compiler.chmod(0o755)
    clean_environment["PATH"] = f"{compiler.parent}:{clean_environment['PATH']}"
    with started("train", "--data", str(tiny_set), *TINY) as process:
        while not begun.exists():
            assert process.poll() is None
            os.sched_yield()
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 75, errors
    assert "stopped before the first batch" in errors


@pytest.mark.parametrize("name", ["bccd", "coco-cc"])
def test_real_data_train_without_a_warning(run: Run, real_data_dir: Path, name: str) -> None:
    graph = Path(__file__).parents[1] / "unit" / "engine" / "tiny-graph.yaml"
    job = ("--cfg", str(graph), "--img", "160", "--epochs", "2", "--device", "cpu")
    done = run("train", "--data", str(real_data_dir / name / "data.yaml"), *job, timeout_s=280)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if " INFO " not in line] == []
