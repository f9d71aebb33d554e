"""`--decode gpu` on a real GPU: nvJPEG, the kernel, streams, and a training with CUDA graphs."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from yolov9.config.decode_memory import picture_store_bytes
from yolov9.config.recipe import Recipe
from yolov9.config.settings import TrainSettings
from yolov9.data.dataset_config import load_dataset_config
from yolov9.data.embedded import generate_embedded
from yolov9.data.index import DatasetIndex
from yolov9.data.loader import LoaderSettings, open_loader
from yolov9.engine.device_batch import DeviceFeed
from yolov9.engine.sample_painter import SamplePainter
from yolov9.engine.trainer import Trainer
from yolov9.errors import ExitCode

pytestmark = pytest.mark.gpu

IMGSZ = 320
WINDOW = 16
MOST_LEVELS = 3.0
"""Mean difference of a sample: nvJPEG enlarges the colour differences in another way than libjpeg."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """data.yaml of 48 JPEGs."""
    return generate_embedded(tmp_path / "set", pictures={"train": 48, "val": 8})


def _settings(data: Path, **changes: object) -> LoaderSettings:
    index = DatasetIndex.build(load_dataset_config(str(data)), "train", cache_dir=None)
    base = LoaderSettings(index=index, imgsz=IMGSZ, batch_size=8, workers=2, seed=3, mosaic_window=WINDOW)
    return replace(base, draw_on_device=True, recipe=Recipe(mixup=0.5), **changes)


def _on_gpu(settings: LoaderSettings, epochs: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
    """Levels (B, H, W, 3) and targets of each batch."""
    device = torch.device("cuda", 0)
    painter = SamplePainter(device, picture_store_bytes(IMGSZ, WINDOW, settings.batch_size))
    feed = DeviceFeed(device, torch.float32, painter=painter)
    with open_loader(settings) as loader:
        for epoch in range(epochs):
            for batch in feed(loader.epoch(epoch)):
                yield (batch.images * 255).round().permute(0, 2, 3, 1).cpu(), batch.rows


def test_pictures_and_labels_are_those_of_the_loader_processes(data: Path) -> None:
    settings = _settings(data)
    with open_loader(replace(settings, draw_on_device=False)) as loader:
        for (levels, rows), batch in zip(_on_gpu(settings), loader.epoch(0), strict=True):
            assert torch.equal(rows, batch.targets)
            differences = (levels - batch.images.float()).abs().mean(dim=(1, 2, 3))
            assert differences.max() < MOST_LEVELS, differences
            batch.release()


def test_a_second_run_draws_the_same_bits(data: Path) -> None:
    first, second = (list(_on_gpu(_settings(data), epochs=2)) for _ in range(2))
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(first, second, strict=True))


def test_a_damaged_picture_costs_itself_only(data: Path) -> None:
    """Huffman tables that cannot be: no decoder reads it, the header does not show it, and the GPU goes on."""
    settings = _settings(data)
    path = sorted((data.parent / "images" / "train").iterdir())[5]
    content = path.read_bytes()
    found = re.search(rb"\xff\xc4", content)
    assert found is not None
    length = int.from_bytes(content[found.start() + 2 : found.start() + 4], "big")
    path.write_bytes(content[: found.start() + 5] + b"\xff" * (length - 3) + content[found.start() + 2 + length :])
    with open_loader(replace(settings, draw_on_device=False)) as loader:
        for (levels, rows), batch in zip(_on_gpu(settings), loader.epoch(0), strict=True):
            assert torch.equal(rows, batch.targets)
            assert (levels - batch.images.float()).abs().mean() < MOST_LEVELS
            batch.release()


def test_a_training_captures_its_graphs_and_ends(data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = TrainSettings(
        data=str(data), cfg="yolov9-t", weights="", epochs=3, batch_size=8, imgsz=IMGSZ, workers=2, device="0",
        decode="gpu", noplots=True, noval=True,
    )  # fmt: skip
    caplog.set_level("INFO")
    assert Trainer(settings, tmp_path / "run").run() == ExitCode.DONE
    assert "decoded and drawn on cuda" in caplog.text
    assert "without CUDA graphs" not in caplog.text
