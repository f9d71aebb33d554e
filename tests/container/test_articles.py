"""Commands that guides to YOLOv9 show, in the image's working folder, with the CPU in place of GPU 0."""

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]
TRAIN = (
    "python train_dual.py --workers 8 --device cpu --batch 64 --data data.yaml --img 64 "
    "--cfg models/detect/yolov9-s.yaml --weights '' --name yolov9-s --hyp hyp.scratch-high.yaml --min-items 0 "
    "--epochs 1 --close-mosaic 15"
)
"""As in the guides, but for the device, the picture size and the number of epochs."""


@pytest.fixture
def options(data_dir: Path, runs_dir: Path) -> list[str]:
    """The working folder of the guides: their data.yaml lies beside the scripts."""
    return [
        *("--volume", f"{data_dir}/data.yaml:/workspace/data.yaml:ro"),
        *("--volume", f"{data_dir}/images:/workspace/images:ro"),
        *("--volume", f"{data_dir}/labels:/workspace/labels:ro"),
        *("--volume", f"{runs_dir}:/runs"),
    ]


def test_train_dual_then_detect_dual(run: Run, options: list[str], runs_dir: Path) -> None:
    run(*shlex.split(TRAIN), options=options, expected=[r"WARN.*(close-mosaic|workers|--batch)"])
    assert (runs_dir / "train/yolov9-s/weights/best.pt").is_file()
    shutil.copy(runs_dir / "train/yolov9-s/weights/best.pt", runs_dir / "yolov9-s.pt")
    detect = "python detect_dual.py --source ./images/val/0.png --img 64 --device cpu --weights ./yolov9-s.pt"
    mount = ["--volume", f"{runs_dir}/yolov9-s.pt:/workspace/yolov9-s.pt:ro"]
    run(*shlex.split(detect), "--name", "yolov9_s_640_detect", options=options + mount)
    assert (runs_dir / "detect/yolov9_s_640_detect/0.png").stat().st_size > 0


def test_a_picture_that_is_not_there_is_a_plain_error(run: Run, options: list[str]) -> None:
    words = "python detect_dual.py --source ./data/images/horses.jpg --img 64 --device cpu --weights ./yolov9-s.pt"
    log = run(*shlex.split(words), options=options, exit_code=2, expected=["ERROR"])
    assert "Traceback" not in log


def test_watch_and_ps_are_there(run: Run) -> None:
    assert "watch" in run("bash", "-c", "type watch ps")
