"""A small data set whose files are large enough to be seen half-copied, and helpers to look at copies."""

import os
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from entrypoint.staging.files import DataFiles, find_files
from yolov9.config.environment import Environment


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(cache_dir=tmp_path / "cache", temporary_dir=tmp_path / "tmp")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """8 + 4 pictures; validation through a list file with relative paths; one picture without a label."""
    root = tmp_path / "set"
    for split, count in (("train", 8), ("val", 4)):
        for kind in ("images", "labels"):
            (root / kind / split).mkdir(parents=True)
        for number in range(count):
            picture = np.random.default_rng(number).integers(0, 255, (64, 64, 3), dtype=np.uint8)
            cv2.imwrite(str(root / "images" / split / f"bild {number} ü.png"), picture)
            if number:
                (root / "labels" / split / f"bild {number} ü.txt").write_text(f"{number % 2} 0.5 0.5 0.4 0.4\n")
    names = "".join(f"./images/val/bild {number} ü.png\n" for number in (3, 1, 2, 0))
    (root / "val.txt").write_text(names, encoding="utf-8")
    (root / "data.yaml").write_text("train: images/train\nval: val.txt\nnames: [no, 'yes: x']\n")
    return root / "data.yaml"


@pytest.fixture
def find(data: Path, environment: Environment) -> Callable[[], DataFiles]:
    """Looks at the data set as it is now."""
    return lambda: find_files(str(data), environment)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "fast"
    folder.mkdir()
    return folder


@pytest.fixture
def left_in(target: Path) -> Callable[[], list[str]]:
    """Names of what lies in the target below this user's folder."""

    def names() -> list[str]:
        root = target / f"yolov9-stage-{os.getuid()}"
        return sorted(path.name for path in root.iterdir()) if root.is_dir() else []

    return names
