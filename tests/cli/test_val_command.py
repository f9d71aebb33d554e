"""`val` as the entrypoint starts it: exit codes and messages."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from yolov9.errors import ExitCode
from yolov9.model import build_model

TINY_GRAPH = {
    "nc": 3,
    "depth_multiple": 1.0,
    "width_multiple": 1.0,
    "layers": [
        [-1, 1, "Conv", [8, 3, 2]],
        [-1, 1, "Conv", [8, 3, 2]],
        [-1, 1, "Conv", [16, 3, 2]],
        [-1, 1, "Conv", [16, 3, 2]],
        [-1, 1, "Conv", [16, 3, 2]],
        [[2, 3, 4], 1, "DDetect", ["nc"]],
    ],
}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = build_model(TINY_GRAPH, nc=3)
    path = tmp_path_factory.mktemp("weights") / "tiny.pt"
    names = ["Platelets", "RBC", "WBC"]
    content = {"format": "yolov9-checkpoint-1", "graph": model.graph, "graph_name": "tiny", "names": names}
    torch.save({**content, "nc": 3, "model": model.state_dict(), "ema": None, "epoch": 0, "training": None}, path)
    return path


@pytest.fixture
def val(tmp_path: Path, weights: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    def run(**options: object) -> "subprocess.CompletedProcess[str]":
        settings = {"weights": str(weights), "imgsz": 64, "device": "cpu", "workers": 1, "noplots": True, **options}
        path = tmp_path / "plan.json"
        path.write_text(json.dumps({"command": "val", "settings": settings, "run_dir": str(tmp_path / "run")}))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "YOLOV9_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-m", "yolov9", str(path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)

    return run


def test_a_real_test_split_is_scored(
    val: Callable[..., "subprocess.CompletedProcess[str]"], real_data_dir: Path, tmp_path: Path
):
    result = val(data=str(real_data_dir / "bccd" / "data.yaml"), task="test", save_json=True)
    assert result.returncode == ExitCode.DONE, result.stderr
    assert "mAP50-95" in result.stdout
    assert "Platelets" in result.stdout
    assert "WARNING" not in result.stderr
    pictures = len(list((real_data_dir / "bccd" / "images" / "test").iterdir()))
    assert f"{pictures} pictures" in result.stderr
    assert (tmp_path / "run" / "predictions.json").is_file()


def test_quiet_leaves_the_scores(
    val: Callable[..., "subprocess.CompletedProcess[str]"], real_data_dir: Path, tmp_path: Path
):
    result = val(data=str(real_data_dir / "bccd" / "data.yaml"), task="test", quiet=True)
    assert result.returncode == ExitCode.DONE
    assert result.stderr == ""
    assert [line.split()[0] for line in result.stdout.splitlines()][:2] == ["class", "all"]


def test_a_data_file_that_is_not_there_is_a_data_error(val: Callable[..., "subprocess.CompletedProcess[str]"]):
    result = val(data="/nowhere/data.yaml")
    assert result.returncode == ExitCode.BAD_DATA
    assert "/nowhere/data.yaml" in result.stderr
    assert "Traceback" not in result.stderr


def test_weights_of_other_classes_are_a_data_error(
    val: Callable[..., "subprocess.CompletedProcess[str]"], real_data_dir: Path
):
    result = val(data=str(real_data_dir / "coco-cc" / "data.yaml"))
    assert result.returncode == ExitCode.BAD_DATA
    assert "3 classes, the data set has 80" in result.stderr


def test_missing_weights_are_a_usage_error(val: Callable[..., "subprocess.CompletedProcess[str]"], real_data_dir: Path):
    result = val(data=str(real_data_dir / "bccd" / "data.yaml"), weights="/nowhere/best.pt")
    assert result.returncode == ExitCode.USAGE
    assert "/nowhere/best.pt" in result.stderr
