"""Runs the real program in a folder of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import cv2
import numpy as np
import pytest

REPOSITORY = Path(__file__).parents[2]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
Started = Callable[..., AbstractContextManager["subprocess.Popen[str]"]]


@pytest.fixture
def clean_environment(tmp_path: Path) -> dict[str, str]:
    """This environment without options, with a home and a cache of its own and no GPU."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("YOLOV9_")}
    variables |= {"HOME": str(tmp_path / "home"), "YOLOV9_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    variables |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(REPOSITORY)}
    return variables


@pytest.fixture
def run(tmp_path: Path, clean_environment: dict[str, str]) -> Run:
    """`run("plan", "--json")` runs `python -m entrypoint plan --json` in an empty folder."""

    def call(
        *words: str, program: tuple[str, ...] = ("-m", "entrypoint"), timeout_s: float = 120, **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *program, *words],
            cwd=tmp_path,
            env={**clean_environment, **variables},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    return call


@pytest.fixture
def started(tmp_path: Path, clean_environment: dict[str, str]) -> Started:
    """`with started("bench") as process:` runs `python -m entrypoint bench`, and ends it whatever happens."""

    @contextmanager
    def start(*words: str) -> Iterator["subprocess.Popen[str]"]:
        command = [sys.executable, "-m", "entrypoint", *words]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, cwd=tmp_path, env=clean_environment, stdout=pipe, stderr=pipe, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    return start


@pytest.fixture
def tiny_set(tmp_path: Path) -> Path:
    """8 pictures to train on, 4 to validate on, one object each."""
    for split, count in (("train", 8), ("val", 4)):
        for kind in ("images", "labels"):
            (tmp_path / "tiny" / kind / split).mkdir(parents=True)
        for number in range(count):
            picture = np.random.default_rng(number).integers(0, 255, (96, 96, 3), dtype=np.uint8)
            cv2.rectangle(picture, (20, 20), (70, 70), (0, 0, 255), -1)
            cv2.imwrite(str(tmp_path / "tiny" / "images" / split / f"{number}.png"), picture)
            label = tmp_path / "tiny" / "labels" / split / f"{number}.txt"
            label.write_text(f"{number % 2} 0.47 0.47 0.52 0.52\n")
    file = tmp_path / "tiny" / "data.yaml"
    file.write_text("train: images/train\nval: images/val\nnames: [a, b]\n")
    return file
