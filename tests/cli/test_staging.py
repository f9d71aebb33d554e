"""A training that reads a copy gives the same results, and leaves nothing behind."""

import csv
import json
import os
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Started = Callable[..., AbstractContextManager["subprocess.Popen[str]"]]
TINY = ("--cfg", "yolov9-t", "--img", "64", "--batch", "4", "--noplots", "--device", "cpu", "--workers", "1")


def results(run_dir: Path) -> list[list[str]]:
    with (run_dir / "results.csv").open() as file:
        return list(csv.reader(file))


def test_results_are_those_of_the_original_and_the_copy_is_gone(run: Run, tmp_path: Path, tiny_set: Path) -> None:
    words = ("train", "--data", str(tiny_set), *TINY, "--epochs", "1")
    (tmp_path / "fast").mkdir()
    staged = run(*words, "--name", "staged", "--stage", str(tmp_path / "fast"))
    assert staged.returncode == 0, staged.stderr
    plain = run(*words, "--name", "plain", "--stage", "off")
    assert plain.returncode == 0, plain.stderr
    runs = tmp_path / "runs" / "train"
    assert results(runs / "staged") == results(runs / "plain")
    assert "copied to" in staged.stderr
    assert not list((tmp_path / "fast" / f"yolov9-stage-{os.getuid()}").iterdir())
    plan = json.loads((runs / "staged" / "plan.json").read_text())
    assert plan["data_copy"].startswith(str(tmp_path / "fast"))
    assert plan["settings"]["data"] == str(tiny_set), "a resumed run must find the original"


def test_p08_a_stop_while_training_leaves_no_copy(tmp_path: Path, tiny_set: Path, started: Started) -> None:
    words = ["train", "--data", str(tiny_set), *TINY, "--epochs", "1000", "--stage", str(tmp_path / "fast")]
    with started(*words) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "pictures found" in line:
                break
        assert len(list((tmp_path / "fast" / f"yolov9-stage-{os.getuid()}").iterdir())) == 2
        process.terminate()
        rest = process.communicate(timeout=200)[1]
    assert process.returncode == 75, rest
    assert "the copy is removed" in rest
    assert not list((tmp_path / "fast" / f"yolov9-stage-{os.getuid()}").iterdir())


def test_a_failed_training_leaves_no_copy_and_says_where_the_originals_are(
    run: Run, tmp_path: Path, tiny_set: Path
) -> None:
    (tiny_set.parent / "labels" / "train" / "1.txt").write_text("7 0.5 0.5 0.1 0.1\n")
    done = run("train", "--data", str(tiny_set), *TINY, "--stage", str(tmp_path / "fast"))
    assert done.returncode == 65, done.stderr
    assert "the originals are called" in done.stderr
    assert not list((tmp_path / "fast" / f"yolov9-stage-{os.getuid()}").iterdir())
