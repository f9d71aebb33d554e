"""P35: nothing in the path of a training connects to anything."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
NO_NETWORK = """
import os, socket

def refuse(what):
    def refused(*arguments, **named):
        with open(os.environ["ATTEMPTS"], "a") as file:
            file.write(f"{os.getpid()} {what} {arguments[1:]}\\n")
        raise OSError(101, "Network is unreachable (a test refuses it)")
    return refused

for name in ("connect", "connect_ex", "sendto"):
    setattr(socket.socket, name, refuse(name))
for name in ("getaddrinfo", "gethostbyname", "create_connection"):
    setattr(socket, name, refuse(name))
"""
"""Loaded by every Python process at its start, loader processes included."""
TINY = ("--cfg", "yolov9-t", "--img", "64", "--batch", "4", "--epochs", "1", "--device", "cpu", "--workers", "1")


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(NO_NETWORK)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("YOLOV9_")}
    return {
        **kept,
        "ATTEMPTS": str(tmp_path / "attempts"),
        "PYTHONPATH": f"{tmp_path / 'site'}:{REPOSITORY}",
        "HOME": str(tmp_path / "home"),
        "YOLOV9_CACHE_DIR": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }


def python(tmp_path: Path, variables: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=280, check=False
    )


def test_p35_training_with_plots_and_chinese_class_names_connects_to_nothing(
    tmp_path: Path, variables: dict[str, str], make_set: Callable[..., Path]
) -> None:
    data = make_set(tmp_path / "tiny", names="[猫, 狗]")
    done = python(tmp_path, variables, "-m", "entrypoint", "train", "--data", str(data), *TINY)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "attempts").exists(), (tmp_path / "attempts").read_text()
    run_dir = tmp_path / "runs" / "train" / "exp"
    drawn = {path.name for path in run_dir.iterdir() if path.suffix in (".png", ".jpg")}
    assert {"results.png", "confusion_matrix.png", "labels.jpg", "train_batch0.jpg"} <= drawn


def test_p35_the_refusal_of_the_test_above_is_heard(tmp_path: Path, variables: dict[str, str]) -> None:
    python(tmp_path, variables, "-c", "import socket; socket.socket().connect(('127.0.0.1', 9))")
    assert "connect" in (tmp_path / "attempts").read_text()


def test_p35_absent_weights_stop_with_the_path_to_place_them_at(
    tmp_path: Path, variables: dict[str, str], tiny_set: Path
) -> None:
    words = ("-m", "entrypoint", "train", "--data", str(tiny_set), "--weights", "yolov9-c.pt")
    done = python(tmp_path, variables, *words)
    assert done.returncode == 2
    assert "yolov9-c.pt" in done.stderr
    assert "type:" in done.stderr
    assert not (tmp_path / "attempts").exists()
