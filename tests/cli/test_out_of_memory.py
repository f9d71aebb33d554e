"""A training whose memory fails at random moments is the same training."""

import csv
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from yolov9.engine.checkpoint import read_training_checkpoint

REPOSITORY = Path(__file__).parents[2]
FAULTS = 20
SEEDS = (1, 2)
TOLERANCE = 1e-3
"""Sums in another order, through 12 updates and three-digit values of results.csv."""
SETTINGS = {
    "cfg": str(REPOSITORY / "tests/unit/engine/tiny-graph.yaml"),
    "epochs": 12,
    "batch_size": 8,
    "optimisation_batch": 16,
    "imgsz": 64,
    "workers": 0,
    "device": "cpu",
    "noplots": True,
}


@pytest.fixture(scope="module")
def many_pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data.yaml of 24 pictures to train on and 8 to validate on, two objects each."""
    root = tmp_path_factory.mktemp("many")
    rng = np.random.default_rng(5)
    for split, count in (("train", 24), ("val", 8)):
        for kind in ("images", "labels"):
            (root / kind / split).mkdir(parents=True)
        for number in range(count):
            cv2.imwrite(str(root / "images" / split / f"{number}.png"), rng.integers(0, 255, (64, 64, 3), np.uint8))
            boxes = [f"{row} {rng.uniform(0.3, 0.7)} {rng.uniform(0.3, 0.7)} 0.4 0.5\n" for row in range(2)]
            (root / "labels" / split / f"{number}.txt").write_text("".join(boxes))
    (root / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [a, b]\n")
    return root / "data.yaml"


def train(
    folder: Path, data: Path, environment: dict[str, str], faults: dict[int, list[Any]], ranks: int = 1, **changes: Any
) -> dict[str, Any]:
    """Trains in a process of its own and returns what it reported, with results and checkpoint."""
    folder.mkdir()
    plan, report = folder / "plan.json", folder / "report.json"
    settings = {**SETTINGS, **changes, "data": str(data)}
    plan.write_text(json.dumps({"command": "train", "settings": settings, "run_dir": str(folder)}))
    (folder / "faults.json").write_text(json.dumps(faults))
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    program = [sys.executable, *launcher, str(Path(__file__).with_name("failing_memory.py"))]
    done = subprocess.run(
        [*program, str(plan), str(folder / "faults.json"), str(report)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    with (folder / "results.csv").open() as file:
        rows = [[float(value) for value in row] for row in list(csv.reader(file))[1:]]
    progress = read_training_checkpoint(folder / "weights" / "last.pt")["training"]["progress"]
    return {**json.loads(report.read_text()), "rows": rows, "progress": progress, "plan": json.loads(plan.read_text())}


@pytest.fixture
def straight(tmp_path: Path, many_pictures: Path, clean_environment: dict[str, str]) -> dict[str, Any]:
    return train(tmp_path / "straight", many_pictures, clean_environment, {})


@pytest.mark.parametrize("seed", SEEDS)
def test_p11_twenty_random_failures_of_memory_change_nothing(
    tmp_path: Path, many_pictures: Path, clean_environment: dict[str, str], straight: dict[str, Any], seed: int
) -> None:
    chosen = random.Random(seed)
    # At most one in each call: a card that is full again and again for one picture is another story, and ends the run.
    calls = chosen.sample([call for call in straight["allocations"] if call[2]], FAULTS)
    faults = [[name, number, chosen.randint(1, count)] for name, number, count in calls]
    run = train(tmp_path / "run", many_pictures, clean_environment, {0: faults})
    assert len(run["came"]) == FAULTS
    assert run["progress"]["optimizer_steps"] == straight["progress"]["optimizer_steps"] > 0
    assert run["batches"] == straight["batches"]
    assert len(run["rows"]) == SETTINGS["epochs"]
    for row, expected in zip(run["rows"], straight["rows"], strict=True):
        assert row == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)
    events = run["plan"]["memory_events"]
    assert events[0]["after"] < events[0]["before"]
    assert all(1 <= event["epoch"] <= SETTINGS["epochs"] and event["batch"] >= 1 for event in events)


def test_one_rank_of_two_that_runs_out_of_memory_changes_nothing(
    tmp_path: Path, many_pictures: Path, clean_environment: dict[str, str]
) -> None:
    runs = [
        train(tmp_path / name, many_pictures, clean_environment, faults, ranks=2, epochs=2, batch_size=4)
        for name, faults in (("straight", {}), ("run", {1: [["add", 0, 50], ["add", 2, 300]]}))
    ]
    assert len(json.loads((tmp_path / "run" / "report.1.json").read_text())["came"]) == 2
    assert runs[1]["progress"]["optimizer_steps"] == runs[0]["progress"]["optimizer_steps"] > 0
    assert runs[1]["batches"] == runs[0]["batches"]
    for row, expected in zip(runs[1]["rows"], runs[0]["rows"], strict=True):
        assert row == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)
