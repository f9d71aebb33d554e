"""Small data sets for the loader's tests, drawn once."""

import json
import os
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from yolov9.data.brush import Brush
from yolov9.data.compiled import COMPILERS, share_library
from yolov9.data.compiled_brush import CompiledBrush, load_brush
from yolov9.data.dataset_config import load_dataset_config
from yolov9.data.index import DatasetIndex
from yolov9.data.loader import LoaderSettings

SIZES_WH = ((160, 120), (120, 160), (96, 96), (200, 80))


def draw_data_set(folder: Path, count: int, *, outlines: bool = False) -> Path:
    """Draws pictures of noise with one bright rectangle each, and labels that enclose it. Picture 3 has no object."""
    (folder / "images").mkdir(parents=True)
    (folder / "labels").mkdir()
    for number in range(count):
        rng = np.random.default_rng(number)
        width, height = SIZES_WH[number % len(SIZES_WH)]
        picture = rng.integers(0, 60, (height, width, 3), np.uint8)
        x1, y1 = rng.integers(4, (width // 2, height // 2))
        x2, y2 = rng.integers((width // 2 + 8, height // 2 + 8), (width - 4, height - 4))
        row = ""
        if number != 3:
            picture[y1:y2, x1:x2] = 255
            cx, cy, w, h = (x1 + x2) / 2 / width, (y1 + y2) / 2 / height, (x2 - x1) / width, (y2 - y1) / height
            row = f"{number % 2} {cx:.6f} {cy:.6f} {w:.6f} {h:.6f}\n"
            if outlines and number % 2:
                corners = ((x1, y1), (x2, y1), (x2, y2), (x1, y2))
                row = "1 " + " ".join(f"{x / width:.6f} {y / height:.6f}" for x, y in corners) + "\n"
        (folder / "labels" / f"p{number:03}.txt").write_text(row)
        cv2.imwrite(str(folder / "images" / f"p{number:03}.png"), picture)
    config = folder / "data.yaml"
    config.write_text(json.dumps({"train": "images", "val": "images", "names": ["dark", "light"]}))
    return config


@pytest.fixture
def new_data_set(tmp_path):
    """Function: draws a data set of its own for a test that damages it; returns (index, image folder)."""

    def make(count=12, **kind):
        config = draw_data_set(tmp_path / "set", count, **kind)
        return build(config), tmp_path / "set" / "images"

    return make


def build(config: Path) -> DatasetIndex:
    return DatasetIndex.build(load_dataset_config(str(config)), "train", cache_dir=None)


@pytest.fixture(scope="session")
def boxes_index(tmp_path_factory):
    """12 pictures with boxes."""
    return build(draw_data_set(tmp_path_factory.mktemp("boxes"), 12))


@pytest.fixture(scope="session")
def outlines_index(tmp_path_factory):
    """12 pictures; every other label is a polygon."""
    return build(draw_data_set(tmp_path_factory.mktemp("outlines"), 12, outlines=True))


@pytest.fixture
def settings(boxes_index):
    """Function: loader settings with small defaults."""

    def make(**changes):
        values = {"index": boxes_index, "imgsz": 96, "batch_size": 4, "workers": 2, "seed": 7}
        return LoaderSettings(**{**values, **changes})

    return make


@pytest.fixture
def contents():
    """Function: all batches of an iterator as plain values that can be compared; gives the slots back."""

    def collect(batches):
        found = []
        for batch in batches:
            found.append(
                (
                    batch.epoch,
                    batch.number,
                    batch.images.numpy().tobytes(),
                    batch.targets.numpy().tobytes(),
                    batch.indices.tolist(),
                    batch.mosaics.tolist(),
                )
            )
            batch.release()
        return found

    return collect


@pytest.fixture
def children():
    """Function: process ids of all descendants of a process (default: this one) that the test has started."""

    def find(pid=None):
        pid = os.getpid() if pid is None else pid
        listing = Path(f"/proc/{pid}/task/{pid}/children")
        direct = [int(child) for child in listing.read_text().split()] if listing.exists() else []
        direct = [child for child in direct if child not in earlier]
        return direct + [below for child in direct for below in find(child)]

    earlier = set()
    earlier.update(find())
    return find


@pytest.fixture(scope="session")
def compiled_brush() -> Brush:
    if not any(shutil.which(name) for name in COMPILERS):
        pytest.skip("no C compiler on this machine")
    brush = load_brush(share_library(None))
    assert isinstance(brush, CompiledBrush)
    return brush
