"""Runs the real program in a folder of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


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
