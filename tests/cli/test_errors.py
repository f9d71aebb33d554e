"""Mistakes that users make: one plain message (found, needed, what to type), an exit code, and no traceback."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

AS_USER = """
import os, sys
import entrypoint.job, pynvml
from entrypoint.cli import main
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({user})
    os.setuid({user})
raise SystemExit(main())
"""
"""The interpreter may lie where only root can read, so everything is imported before the user changes."""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def data_file(tmp_path: Path) -> Path:
    """A data set of four pictures without a single label."""
    for split in ("train", "val"):
        folder = tmp_path / "set" / "images" / split
        folder.mkdir(parents=True)
        for number in range(2):
            picture = np.random.default_rng(number).integers(0, 255, (64, 64, 3), dtype=np.uint8)
            cv2.imwrite(str(folder / f"{number}.png"), picture)
    file = tmp_path / "set" / "data.yaml"
    file.write_text("train: images/train\nval: images/val\nnames: [a, b]\n")
    return file


@pytest.fixture
def foreign_folder() -> Iterator[Path]:
    """A folder that everybody may enter and only root may write to."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def assert_plain(done: "subprocess.CompletedProcess[str]", exit_code: int, *words: str) -> None:
    text = done.stdout + done.stderr
    assert done.returncode == exit_code, text
    assert "Traceback" not in text, text
    for word in ("found:", "needed:", "type:", *words):
        assert word in text, text


def test_missing_data_yaml(run: Run, tmp_path: Path) -> None:
    assert_plain(run("train", "--data", "data.yaml"), 65, f"{tmp_path}/data.yaml", "--data")
    assert not (tmp_path / "runs").exists()


def test_missing_weights(run: Run, tmp_path: Path) -> None:
    assert_plain(run("detect", "--weights", "yolov9-s.pt"), 2, f"{tmp_path}/yolov9-s.pt", "--weights")
    assert not (tmp_path / "runs").exists()


def test_no_weights_and_no_run(run: Run) -> None:
    assert_plain(run("val"), 2, "best.pt", "--weights")


def test_unknown_model_name(run: Run, tmp_path: Path) -> None:
    assert_plain(run("train", "--cfg", "yolov9-x"), 2, "yolov9-x", "yolov9-t", "gelan-e")
    assert not (tmp_path / "runs").exists()


def test_gpu_asked_for_and_none_there(run: Run, tmp_path: Path) -> None:
    assert_plain(run("train", "--device", "0"), 69, "--device 0", "no GPU is visible", "docker run --gpus all")
    assert not (tmp_path / "runs" / "train" / "exp").exists()


def test_unwritable_output_folder(foreign_folder: Path, clean_environment: dict[str, str]) -> None:
    user = 12345 if os.getuid() == 0 else os.getuid()
    done = subprocess.run(
        [sys.executable, "-c", AS_USER.format(user=user), "train"],
        cwd=foreign_folder,
        env={**clean_environment, "HOME": "/", "YOLOV9_CACHE_DIR": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    owner = foreign_folder.stat().st_uid
    assert_plain(done, 73, f"user {user}:", f"belongs to user {owner}", "mode 0555", "--project")


def test_a_file_where_the_results_should_go(run: Run, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    assert_plain(run("train", "--device", "cpu"), 73, str(tmp_path / "runs"), "--project")


def test_data_set_without_a_single_label(run: Run, data_file: Path, tmp_path: Path) -> None:
    done = run("train", "--data", str(data_file), "--cfg", "yolov9-t", "--img", "64", "--device", "cpu", timeout_s=280)
    assert_plain(done, 65, "label")
    assert not list((tmp_path / "runs" / "train").iterdir()), "a refused job leaves no folder behind"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["train", "--hyp", "scratch-hihg"], "scratch-high"),
        (["train", "--epochs", "0"], "--epochs 0"),
        (["train", "--epoch", "3"], "--epochs"),
        (["train", "--resume"], "last.pt"),
        (["detect", "--source", "horses.jpg", "--weights", "w.pt"], "horses.jpg"),
        (["train", "--config", "none.yaml"], "none.yaml"),
    ],
)
def test_other_usage_errors(run: Run, tmp_path: Path, argv: list[str], words: str) -> None:
    (tmp_path / "w.pt").touch()
    assert_plain(run(*argv), 2, words)
