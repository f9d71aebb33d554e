"""A training that reads a copy gives the same results, and leaves nothing behind."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
TINY = ("--cfg", "yolov9-t", "--img", "64", "--batch", "4", "--noplots", "--device", "cpu", "--workers", "1")


@pytest.fixture
def tiny_set(tmp_path: Path) -> Path:
    for split, count in (("train", 4), ("val", 2)):
        for kind in ("images", "labels"):
            (tmp_path / "tiny" / kind / split).mkdir(parents=True)
        for number in range(count):
            picture = np.random.default_rng(number).integers(0, 255, (96, 96, 3), dtype=np.uint8)
            cv2.imwrite(str(tmp_path / "tiny" / "images" / split / f"{number}.png"), picture)
            label = tmp_path / "tiny" / "labels" / split / f"{number}.txt"
            label.write_text(f"{number % 2} 0.47 0.47 0.52 0.52\n")
    file = tmp_path / "tiny" / "data.yaml"
    file.write_text("train: images/train\nval: images/val\nnames: [a, b]\n")
    return file


def results(run_dir: Path) -> list[list[str]]:
    with (run_dir / "results.csv").open() as file:
        return list(csv.reader(file))


@contextmanager
def started(*words: str, cwd: Path, env: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """A command that is running; ended with the test, whatever happens."""
    command = [sys.executable, "-m", "entrypoint", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=cwd, env=env, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


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


def test_p08_a_stop_while_training_leaves_no_copy(
    tmp_path: Path, tiny_set: Path, clean_environment: dict[str, str]
) -> None:
    words = ["train", "--data", str(tiny_set), *TINY, "--epochs", "1000", "--stage", str(tmp_path / "fast")]
    with started(*words, cwd=tmp_path, env=clean_environment) as process:
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
