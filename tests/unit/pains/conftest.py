"""A tiny data set, machines on paper, and programs run as an ordinary user."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from entrypoint.host import read_facts
from entrypoint.plan import Plan, make_plan
from entrypoint.request import make_request

REPOSITORY = Path(__file__).parents[3]
AS_USER = """
import os, sys
import zipfile
import entrypoint.job, pynvml
from yolov9.data import DatasetIndex, load_dataset_config
for encoding in ("utf-8-sig", "cp437"):
    b"x".decode(encoding)
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(12345)
    os.setuid(12345)
"""
"""The interpreter may lie where only root can read, so everything is imported before the user changes."""
V2 = {"proc/self/cgroup": "0::/box\n", "sys/fs/cgroup/cgroup.controllers": "cpu memory\n"}


def draw_set(root: Path, names: str = "[a, b]") -> Path:
    """8 pictures to train on and 4 to validate on, 96 x 96."""
    for split, count in (("train", 8), ("val", 4)):
        for kind in ("images", "labels"):
            (root / kind / split).mkdir(parents=True)
        for number in range(count):
            picture = np.random.default_rng(number).integers(0, 255, (96, 96, 3), dtype=np.uint8)
            cv2.rectangle(picture, (20, 20), (70, 70), (0, 0, 255), -1)
            cv2.imwrite(str(root / "images" / split / f"{number}.png"), picture)
            (root / "labels" / split / f"{number}.txt").write_text(f"{number % 2} 0.47 0.47 0.52 0.52\n")
    file = root / "data.yaml"
    file.write_text(f"train: images/train\nval: images/val\nnames: {names}\n", encoding="utf-8")
    return file


@pytest.fixture
def tiny_set(tmp_path: Path) -> Path:
    return draw_set(tmp_path / "tiny")


@pytest.fixture
def make_set() -> Callable[..., Path]:
    return draw_set


@pytest.fixture
def plan_on(make_tree: Callable[..., Path]) -> Callable[..., Plan]:
    """`plan_on("--workers 4", shm={...}, files={...}, pictures=9)`: the plan of a machine on paper; 64 GiB, 64 CPUs."""

    def plan(
        argv: str = "",
        *,
        files: dict[str, str] | None = None,
        variables: dict[str, str] | None = None,
        pictures: int | None = None,
        **given: Any,
    ) -> Plan:
        text = {**V2, "proc/meminfo": f"MemTotal: {64 << 20} kB\nMemAvailable: {64 << 20} kB\n", **(files or {})}
        wheel = {"torch": "2.14.1+cu130", "cuda": "13.0"}
        facts = read_facts(make_tree(text, {"cpu_count": 64, "affinity": 64, "wheel": wheel, **given}))
        request = make_request("train", argv.split(), variables=variables or {})
        return make_plan(facts, replace(request, model="yolov9-t", pictures=pictures))

    return plan


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach; pytest's own are root's."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.fixture
def as_user(open_folder: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs lines of Python as an ordinary user without an entry in passwd."""

    def run(code: str, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("YOLOV9_", "HOME", "XDG_"))}
        kept |= {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        return subprocess.run(
            [sys.executable, "-c", AS_USER + code, *words],
            cwd=open_folder,
            env={**kept, **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run
