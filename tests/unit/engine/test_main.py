"""`python -m yolov9 PLAN.json` as a process: exit codes, signals, what it prints."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from yolov9.engine.checkpoint import read_training_checkpoint

GRAPH = Path(__file__).parent / "tiny-graph.yaml"


def write_plan(folder: Path, data: Path, **changes: Any) -> Path:
    settings = {
        "data": str(data),
        "cfg": str(GRAPH),
        "epochs": 2,
        "batch_size": 4,
        "imgsz": 64,
        "workers": 1,
        "device": "cpu",
        "noplots": True,
        **changes,
    }
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"command": "train", "settings": settings, "run_dir": str(folder / "run")}))
    return plan


def start(plan: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "yolov9", str(plan)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run(plan: Path) -> tuple[int, str]:
    process = start(plan)
    output, _ = process.communicate(timeout=200)
    return process.returncode, output


def test_a_plan_is_done_without_warnings_bars_or_colours(tmp_path: Path, tiny_data: Path) -> None:
    code, output = run(write_plan(tmp_path, tiny_data))
    assert code == 0, output
    assert "\r" not in output
    assert "\x1b" not in output
    assert "epoch 2/2" in output
    assert [line for line in output.splitlines() if " INFO " not in line] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_exits_resumable(tmp_path: Path, tiny_data: Path, number: signal.Signals) -> None:
    process = start(write_plan(tmp_path, tiny_data, epochs=100_000))
    assert process.stdout is not None
    for line in process.stdout:
        if "epoch 1/" in line:
            process.send_signal(number)
            break
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 75, output
    progress = read_training_checkpoint(tmp_path / "run" / "weights" / "last.pt")["training"]["progress"]
    assert progress["epoch"] >= 1
    assert not progress["finished"]


def test_a_user_error_has_its_exit_code_and_no_traceback(tmp_path: Path, tiny_data: Path) -> None:
    code, output = run(write_plan(tmp_path, tiny_data, cfg="yolov9-z"))
    assert code == 2
    assert "Traceback" not in output
    assert "yolov9-z" in output


def test_a_plan_that_is_none_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("[]")
    code, output = run(tmp_path / "plan.json")
    assert code == 2
    assert "Traceback" not in output


def test_ctrl_c_before_the_training_ends_the_process_without_a_traceback(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    os.mkfifo(plan)
    process = subprocess.Popen([sys.executable, "-m", "yolov9", str(plan)], stderr=subprocess.PIPE, text=True)
    with plan.open("w"):  # Opens as soon as the process waits for its plan.
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == -signal.SIGINT


def test_a_gpu_that_fails_ends_the_process_at_once_with_its_own_exit_code(tmp_path: Path, tiny_data: Path) -> None:
    code = """
import sys
from yolov9.__main__ import main
from yolov9.loss import DetectionLoss
def fail(*arguments):
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
DetectionLoss.__call__ = fail
main(sys.argv[1:])
print("clean-up would hang here")
"""
    plan = write_plan(tmp_path, tiny_data)
    done = subprocess.run(
        [sys.executable, "-c", code, str(plan)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 71, done.stderr
    assert "illegal memory access" in done.stderr
    assert "--resume" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
