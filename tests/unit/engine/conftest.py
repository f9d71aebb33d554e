"""A drawn data set of a few pictures, a detector of five layers, and training runs on them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from yolov9.config.settings import TrainSettings
from yolov9.engine.stop import StopRequest
from yolov9.engine.trainer import Trainer
from yolov9.errors import ExitCode

PICTURES = {"train": 10, "val": 4}
SIZE = 64

Train = Callable[..., ExitCode]


class StopAfter(StopRequest):
    """Says stop when asked so many times: once after each micro-batch, once before each validation batch."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self._left = batches

    @property
    def requested(self) -> bool:
        self._left -= 1
        return self._left <= 0

    @requested.setter
    def requested(self, value: bool) -> None:
        pass


def _draw(folder: Path, split: str, count: int, rng: np.random.Generator) -> None:
    for kind in ("images", "labels"):
        (folder / kind / split).mkdir(parents=True)
    for number in range(count):
        picture = rng.integers(0, 60, (SIZE, SIZE, 3), dtype=np.uint8)
        rows = []
        for _ in range(2):
            side = int(rng.integers(16, 28))
            x, y, cls = int(rng.integers(0, SIZE - side)), int(rng.integers(0, SIZE - side)), int(rng.integers(0, 3))
            picture[y : y + side, x : x + side, cls] = 230
            rows.append(f"{cls} {(x + side / 2) / SIZE} {(y + side / 2) / SIZE} {side / SIZE} {side / SIZE}")
        cv2.imwrite(str(folder / "images" / split / f"{number}.png"), picture)
        (folder / "labels" / split / f"{number}.txt").write_text("\n".join(rows) + "\n")


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data.yaml of a drawn data set with three classes."""
    folder = tmp_path_factory.mktemp("tiny")
    rng = np.random.default_rng(7)
    for split, count in PICTURES.items():
        _draw(folder, split, count, rng)
    (folder / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [blue, green, red]\n")
    return folder / "data.yaml"


def _settings(data: Path, **changes: Any) -> TrainSettings:
    values: dict[str, Any] = {
        "data": str(data),
        "cfg": str(Path(__file__).parent / "tiny-graph.yaml"),
        "epochs": 2,
        "batch_size": 4,
        "optimisation_batch": 8,
        "imgsz": SIZE,
        "workers": 0,
        "device": "cpu",
        "noplots": True,
    }
    return TrainSettings(**{**values, **changes})


@pytest.fixture(scope="session")
def train(tiny_data: Path) -> Train:
    """Trains 2 epochs of 3 micro-batches into a folder; `stop_after` so many requests it is stopped."""

    def run(
        run_dir: Path, *, stop_after: int | None = None, stop: StopRequest | None = None, **changes: Any
    ) -> ExitCode:
        if stop_after is not None:
            stop = StopAfter(stop_after)
        data = Path(changes.pop("data", tiny_data))
        return Trainer(_settings(data, **changes), run_dir, stop=stop).run()

    return run


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory, train: Train) -> Path:
    """Folder of an undisturbed run, with pictures."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert train(folder, noplots=False) == ExitCode.DONE
    return folder
