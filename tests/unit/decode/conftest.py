"""JPEGs of the embedded data set, read by the loader and drawn on the CPU as a GPU would."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from yolov9.config.decode_memory import picture_store_bytes
from yolov9.data.dataset_config import load_dataset_config
from yolov9.data.embedded import generate_embedded
from yolov9.data.index import DatasetIndex
from yolov9.data.loader import Batch, LoaderSettings, open_loader
from yolov9.engine.device_batch import DeviceFeed
from yolov9.engine.sample_painter import SamplePainter

CPU = torch.device("cpu")
IMGSZ = 160
PICTURES = 12


def _build(folder: Path) -> DatasetIndex:
    return DatasetIndex.build(load_dataset_config(str(folder / "data.yaml")), "train", cache_dir=None)


def _with_outlines(folder: Path) -> None:
    """Turns each box into an outline of its four corners."""
    for path in (folder / "labels").rglob("*.txt"):
        rows = np.array([line.split() for line in path.read_text().splitlines()], np.float64).reshape(-1, 5)
        low, high = rows[:, 1:3] - rows[:, 3:] / 2, rows[:, 1:3] + rows[:, 3:] / 2
        corners = np.concatenate((low, high[:, :1], low[:, 1:], high, low[:, :1], high[:, 1:]), axis=1).clip(0, 1)
        lines = [[str(int(row[0])), *(f"{v:.6f}" for v in c)] for row, c in zip(rows, corners, strict=True)]
        path.write_text("".join(" ".join(line) + "\n" for line in lines))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Drawing is made of operations too small to be divided; threads that wait would take the CPUs of the workers."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def jpegs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of 12 training pictures whose objects have outlines."""
    folder = tmp_path_factory.mktemp("decode") / "set"
    generate_embedded(folder, pictures={"train": PICTURES, "val": 2})
    _with_outlines(folder)
    return folder


@pytest.fixture
def own_jpegs(jpegs: Path, tmp_path: Path) -> Path:
    """A copy for a test that damages it."""
    return Path(shutil.copytree(jpegs, tmp_path / "set"))


@pytest.fixture
def build() -> Callable[[Path], DatasetIndex]:
    """Function: the index of the training pictures of a folder."""
    return _build


@pytest.fixture
def settings(jpegs: Path) -> Callable[..., LoaderSettings]:
    """Function: settings of a loader whose samples are drawn on the device."""
    index = _build(jpegs)

    def make(**changes: Any) -> LoaderSettings:
        values: dict[str, Any] = {"index": index, "imgsz": IMGSZ, "batch_size": 4, "workers": 0, "seed": 7}
        return LoaderSettings(**{"mosaic_window": 5, "draw_on_device": True, **values, **changes})

    return make


Batches = list[tuple[Tensor, Tensor, list[int]]]


@pytest.fixture
def painted() -> Callable[..., Batches]:
    """Function: pictures (levels), targets and numbers of the batches of an epoch, drawn on a device."""

    def paint(settings: LoaderSettings, start_batch: int = 0, store_bytes: int | None = None) -> Batches:
        size = store_bytes or picture_store_bytes(settings.imgsz, settings.mosaic_window, settings.batch_size)
        feed, seen = DeviceFeed(CPU, torch.float32, painter=SamplePainter(CPU, size)), []
        with open_loader(settings) as loader:
            found: list[Batch] = []
            for on_device in feed(_noted(loader.epoch(0, start_batch), found)):
                levels = (on_device.images * 255).round().permute(0, 2, 3, 1)
                seen.append((levels, on_device.rows, found[-1].indices.tolist()))
        return seen

    return paint


@pytest.fixture
def drawn() -> Callable[[LoaderSettings], Batches]:
    """Function: the same, drawn by the loader's workers."""

    def draw(settings: LoaderSettings) -> Batches:
        seen = []
        with open_loader(replace(settings, draw_on_device=False)) as loader:
            for batch in loader.epoch(0):
                seen.append((batch.images.float(), batch.targets, batch.indices.tolist()))
                batch.release()
        return seen

    return draw


def _noted(batches: Iterator[Batch], found: list[Batch]) -> Iterator[Batch]:
    for batch in batches:
        found.append(batch)
        yield batch
