"""Small real videos and pictures for the prediction tests."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torch import nn

from yolov9.logs import LOG
from yolov9.model import build_model


@pytest.fixture
def make_video() -> Callable[..., Path]:
    """Writes a video whose frame k is grey with value 20 * (k + 1)."""

    def make(path: Path, frames: int = 6, size_wh: tuple[int, int] = (64, 48), fps: float = 12.5) -> Path:
        codec = cv2.VideoWriter.fourcc(*("MJPG" if path.suffix == ".avi" else "mp4v"))
        writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, codec, fps, size_wh)
        assert writer.isOpened()
        for number in range(frames):
            writer.write(np.full((size_wh[1], size_wh[0], 3), 20 * (number + 1), np.uint8))
        writer.release()
        return path

    return make


@pytest.fixture
def make_picture() -> Callable[..., Path]:
    """Writes a picture of one colour; any file name works."""

    def make(path: Path, size_wh: tuple[int, int] = (40, 30), colour: int = 99) -> Path:
        ok, data = cv2.imencode(path.suffix, np.full((size_wh[1], size_wh[0], 3), colour, np.uint8))
        assert ok
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.tobytes())
        return path

    return make


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    """Lines of the program's log during a test."""
    lines: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.levelname} {record.getMessage()}")

    handler, level = Collect(), LOG.level
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    yield lines
    LOG.removeHandler(handler)
    LOG.setLevel(level)


TINY_GRAPH = {
    "nc": 3,
    "depth_multiple": 1.0,
    "width_multiple": 1.0,
    "layers": [
        [-1, 1, "Conv", [8, 3, 2]],
        [-1, 1, "Conv", [16, 3, 2]],
        [-1, 1, "Conv", [32, 3, 2]],
        [-1, 1, "Conv", [32, 3, 2]],
        [-1, 1, "RepNCSPELAN4", [32, 32, 16, 1]],
        [-1, 1, "Conv", [32, 3, 2]],
        [[2, 4, 5], 1, "DDetect", ["nc"]],
    ],
}
NAMES = ["RBC", "汽车", "../../escape"]


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory, fill_weights: Callable[..., nn.Module]) -> Path:
    """A checkpoint of a very small model with three classes whose weights are always the same."""
    model = build_model(TINY_GRAPH, nc=len(NAMES))
    state = fill_weights(model).state_dict()
    for level in range(3):  # smaller boxes than chance would give, and objects of all three classes
        state[f"model.6.cv2.{level}.2.bias"] = -0.5 * torch.arange(16.0).repeat(4)
        weight = state[f"model.6.cv3.{level}.2.weight"]
        state[f"model.6.cv3.{level}.2.weight"] = 8 * (weight - weight.mean(1, keepdim=True))
        state[f"model.6.cv3.{level}.2.bias"] = torch.tensor([-6.0, 0.0, -1.0])
    path = tmp_path_factory.mktemp("weights") / "fixed.pt"
    content = {
        "format": "yolov9-checkpoint-1",
        "graph": model.graph,
        "graph_name": model.graph_name,
        "names": NAMES,
        "nc": len(NAMES),
        "model": state,
        "ema": None,
        "epoch": 0,
        "training": None,
    }
    torch.save(content, path)
    return path


@pytest.fixture
def unnamed_weights(weights: Path, tmp_path: Path) -> Path:
    """The same model; its classes have numbers for names."""
    path = tmp_path / "unnamed.pt"
    torch.save({**torch.load(weights), "names": ["0", "1", "2"]}, path)
    return path


@pytest.fixture(scope="session")
def photo(real_data_dir: Path) -> Path:
    """A real picture, 640 x 480."""
    return min((real_data_dir / "bccd" / "images" / "val").iterdir())
