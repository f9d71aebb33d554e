"""The main job in a container without a network: train, find the files, detect with them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., str]
TINY = ("--cfg", "yolov9-t", "--img", "64", "--epochs", "1", "--batch", "4", "--workers", "1")


@pytest.fixture
def mounts(data_dir: Path, runs_dir: Path) -> list[str]:
    return ["--volume", f"{data_dir}:/data:ro", "--volume", f"{runs_dir}:/runs"]


def test_p35_one_epoch_of_the_embedded_data_set_and_detect_without_a_network(run: Run, runs_dir: Path) -> None:
    mount = ["--volume", f"{runs_dir}:/runs"]
    run("train", *TINY[:-4], "--batch", "16", options=mount)
    folder = runs_dir / "train/exp"
    for name in ("weights/last.pt", "weights/best.pt", "results.csv", "hyp.yaml", "opt.yaml", "plan.json"):
        assert (folder / name).stat().st_size > 0, name
    assert len((folder / "results.csv").read_text().splitlines()) == 2
    assert json.loads((folder / "plan.json").read_text())["settings"]["epochs"] == 1
    picture = next(runs_dir.rglob("images/val/*.jpg")).relative_to(runs_dir)
    words = ["--weights", "runs/train/exp/weights/best.pt", "--source", f"runs/{picture}", "--img", "64"]
    run("detect", *words, "--conf", "0.001", "--save-txt", options=mount)
    assert (runs_dir / "detect/exp" / picture.name).stat().st_size > 0


def test_p31_data_mounted_read_only_is_unchanged(
    run: Run, mounts: list[str], data_dir: Path, tree_hash: Callable[[Path], str]
) -> None:
    before = tree_hash(data_dir)
    run("train", "--data", "/data/data.yaml", *TINY, "--cache", "disk", options=mounts)
    assert tree_hash(data_dir) == before


def test_p32_any_user_on_a_read_only_root_owns_the_results(run: Run, mounts: list[str], runs_dir: Path) -> None:
    options = ["--user", "12345:12345", "--read-only", "--tmpfs", "/tmp", *mounts]
    run("train", "--data", "/data/data.yaml", *TINY, options=options)
    assert (runs_dir / "train/exp/weights/best.pt").is_file()
    assert {(path.stat().st_uid, path.stat().st_gid) for path in runs_dir.rglob("*")} == {(12345, 12345)}
    plan = json.loads((runs_dir / "train/exp/plan.json").read_text())
    assert plan["facts"]["limits"]["uid"] == 12345
    assert plan["environment"]["YOLOV9_CACHE_DIR"] == "/runs/.cache"


def test_p32_an_unwritable_folder_for_results_stops_before_the_data_are_read(run: Run, mounts: list[str]) -> None:
    options = [word.replace(":/runs", ":/runs:ro") for word in mounts]
    log = run("train", "--data", "/data/data.yaml", *TINY, options=options, exit_code=73, expected=["ERROR"])
    assert "runs" in log
    assert "1000" in log


@pytest.fixture(scope="module")
def log_of_read_only_root(start_for_all: Callable[..., Any], tiny_data: Path, quiet: Callable) -> str:
    """Log of a training with a read-only root, nothing mounted for results, and a time zone."""
    options = ["--read-only", "--tmpfs", "/tmp", "--volume", f"{tiny_data}:/data:ro", "--env", "TZ=Asia/Kolkata"]
    container = start_for_all("train", "--data", "/data/data.yaml", *TINY, options=options)
    assert container.wait() == 0, container.log()
    quiet(container.log(), [])
    return str(container.log())


def test_without_a_mount_results_go_to_the_volume_also_with_a_read_only_root(log_of_read_only_root: str) -> None:
    assert "done in" in log_of_read_only_root


def test_p37_a_gpu_that_is_asked_for_and_absent_is_an_error(run: Run, mounts: list[str]) -> None:
    words = ["--data", "/data/data.yaml", *TINY, "--device", "0"]
    log = run("train", *words, options=mounts, exit_code=69, expected=["ERROR"])
    assert "--gpus" in log


def test_p39_the_log_has_no_redraws_or_colours_and_the_time_zone_that_was_asked_for(log_of_read_only_root: str) -> None:
    assert "\r" not in log_of_read_only_root
    assert "\x1b" not in log_of_read_only_root
    assert "+0530" in log_of_read_only_root
