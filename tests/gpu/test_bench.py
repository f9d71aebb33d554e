"""`bench` on a GPU: the real step is measured beside the real loader."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from yolov9.config.settings import TrainSettings
from yolov9.engine import bench

pytestmark = pytest.mark.gpu


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for kind in ("images", "labels"):
        (tmp_path / kind).mkdir()
    for number in range(16):
        picture = np.random.default_rng(number).integers(0, 255, (160, 160, 3), dtype=np.uint8)
        cv2.imwrite(str(tmp_path / "images" / f"{number}.png"), picture)
        (tmp_path / "labels" / f"{number}.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    (tmp_path / "data.yaml").write_text("train: images\nval: images\nnames: [a]\n")
    return tmp_path / "data.yaml"


def test_steps_are_timed_and_no_slot_is_lost_between_pairs(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six pairs with four slots: a slot that is not given back would end the third one."""
    settings = TrainSettings(data=str(data), cfg="yolov9-t", imgsz=128, device="0", amp="auto")
    plan = bench.BenchPlan(seconds=60, workers=[1, 2, 3], batches=[2, 4])
    assert bench.run(settings, plan, tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 6 + 2
    assert all(float(line.split()[-2]) > 0 for line in lines[1:7])
    assert "--batch" in lines[-1]
