"""Page-locked slots of the loader."""

import json

import cv2
import numpy as np
import pytest
import torch

from yolov9.data.dataset_config import load_dataset_config
from yolov9.data.index import DatasetIndex
from yolov9.data.loader import LoaderSettings, open_loader

pytestmark = pytest.mark.gpu


@pytest.fixture
def index(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    for number in range(8):
        picture = np.random.default_rng(number).integers(0, 256, (120, 160, 3), np.uint8)
        cv2.imwrite(str(tmp_path / "images" / f"{number}.png"), picture)
        (tmp_path / "labels" / f"{number}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    (tmp_path / "data.yaml").write_text(json.dumps({"train": "images", "val": "images", "names": ["thing"]}))
    return DatasetIndex.build(load_dataset_config(str(tmp_path / "data.yaml")), "train", cache_dir=None)


def test_slots_are_page_locked_and_copied_asynchronously(index):
    settings = LoaderSettings(index=index, imgsz=640, batch_size=4, workers=2, pin=True)
    with open_loader(settings) as loader:
        for batch in loader.epoch(0):
            assert batch.images.is_pinned()
            on_gpu = batch.images.to("cuda", non_blocking=True)
            torch.cuda.synchronize()
            assert on_gpu.cpu().equal(batch.images)
            assert on_gpu.permute(0, 3, 1, 2).is_contiguous(memory_format=torch.channels_last)
            batch.release()


def test_a_second_loader_can_lock_its_pages_after_the_first_is_closed(index):
    for _ in range(2):
        with open_loader(LoaderSettings(index=index, imgsz=64, batch_size=4, workers=1, pin=True)) as loader:
            batch = next(loader.epoch(0))
            assert batch.images.is_pinned()
            batch.release()
