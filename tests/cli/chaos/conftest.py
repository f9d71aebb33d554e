"""Many small trainings as real processes, cheaply: a process that has imported the trainer forks one for each."""

import ctypes
import json
import os
import select
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import cv2
import numpy as np
import pytest
import torch

from yolov9.engine.checkpoint import read_training_checkpoint

REPOSITORY = Path(__file__).parents[3]
SIZE = 64
PICTURES = {"train": 12, "val": 4}
SETTINGS = {
    "cfg": str(REPOSITORY / "tests/unit/engine/tiny-graph.yaml"),
    "epochs": 3,
    "batch_size": 4,
    "optimisation_batch": 8,
    "imgsz": SIZE,
    "workers": 1,
    "device": "cpu",
    "noplots": True,
}
"""3 epochs of 3 micro-batches, two to an optimizer step after warm-up; about a second."""
TALLY = pytest.StashKey[Counter[str]]()

IN_MODIFY, IN_MOVED_TO, IN_CREATE = 0x2, 0x80, 0x100
INOTIFY_HEADER = struct.Struct("iIII")
"""struct inotify_event without the name: watch, mask, cookie, length of the name."""
EVENTS = {IN_MODIFY: "written", IN_MOVED_TO: "renamed", IN_CREATE: "made"}


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TALLY] = Counter()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name, count in sorted(config.stash[TALLY].items()):
        terminalreporter.write_line(f"chaos: {count:4d} {name}")


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Counter[str]:
    """Counts that are shown at the end of the tests."""
    return request.config.stash[TALLY]


class Watch:
    """What happens to files in some folders, as the kernel tells it: (name, event)."""

    def __init__(self, *folders: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = libc.inotify_init1(os.O_NONBLOCK)
        for folder in folders:
            assert libc.inotify_add_watch(self.descriptor, os.fsencode(folder), sum(EVENTS)) >= 0

    def read(self) -> list[tuple[str, str]]:
        """Returns what is new."""
        try:
            data = os.read(self.descriptor, 1 << 16)
        except BlockingIOError:
            return []
        events, place = [], 0
        while place < len(data):
            _, mask, _, length = INOTIFY_HEADER.unpack_from(data, place)
            place += INOTIFY_HEADER.size
            events.append((os.fsdecode(data[place : place + length].rstrip(b"\0")), EVENTS.get(mask, "")))
            place += length
        return events

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.descriptor)


class Trainers:
    """Starts one trainer after the other; see fork_trainer.py.

    Args:
        environment: of the trainers.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        program = [sys.executable, str(Path(__file__).with_name("fork_trainer.py"))]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(program, env=environment, stdin=pipe, stdout=pipe, text=True)
        assert self._answer() == {"threads": 1}, "a fork copies only the thread that forks"

    def start(self, run_dir: Path, settings: dict[str, Any], **variables: str) -> int:
        """Starts to train; returns the process id, which is also that of its group. The log is beside the folder."""
        run_dir.parent.mkdir(parents=True, exist_ok=True)
        plan = run_dir.with_name("plan.json")
        values = {"command": "train", "settings": settings, "run_dir": str(run_dir)}
        plan.write_text(json.dumps(values))
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"plan": str(plan), "variables": variables}) + "\n")
        self._process.stdin.flush()
        return self._answer()["pid"]

    def ended(self, timeout_s: float, *others: int) -> bool:
        """Waits until the trainer has ended (True), or one of these descriptors can be read or the time is over."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout, *others], [], [], timeout_s)
        return self._process.stdout in ready

    def status(self) -> int:
        """Waits for the end; returns the exit code or minus the signal."""
        return self._answer()["status"]

    def close(self) -> None:
        """Ends the process that forks."""
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> dict[str, int]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def draw_set(root: Path) -> Path:
    """A data set of coloured squares, three classes."""
    rng = np.random.default_rng(7)
    for split, count in PICTURES.items():
        for kind in ("images", "labels"):
            (root / kind / split).mkdir(parents=True)
        for number in range(count):
            picture = rng.integers(0, 60, (SIZE, SIZE, 3), dtype=np.uint8)
            side, x, y, cls = (int(value) for value in rng.integers((16, 0, 0, 0), (28, 36, 36, 3)))
            picture[y : y + side, x : x + side, cls] = 230
            cv2.imwrite(str(root / "images" / split / f"{number}.png"), picture)
            row = f"{cls} {(x + side / 2) / SIZE} {(y + side / 2) / SIZE} {side / SIZE} {side / SIZE}\n"
            (root / "labels" / split / f"{number}.txt").write_text(row)
    (root / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [blue, green, red]\n")
    return root / "data.yaml"


@pytest.fixture(scope="session")
def chaos_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chaos")


@pytest.fixture(scope="session")
def trainer_environment(chaos_dir: Path) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("YOLOV9_")}
    variables |= {"HOME": str(chaos_dir), "YOLOV9_CACHE_DIR": str(chaos_dir / "cache"), "OMP_NUM_THREADS": "1"}
    return variables | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(REPOSITORY)}


@pytest.fixture(scope="session")
def trainers(trainer_environment: dict[str, str]) -> Iterator[Trainers]:
    trainers = Trainers(trainer_environment)
    yield trainers
    trainers.close()


@pytest.fixture(scope="session")
def chaos_settings(chaos_dir: Path) -> dict[str, Any]:
    return {**SETTINGS, "data": str(draw_set(chaos_dir / "data"))}


@pytest.fixture(scope="session")
def undisturbed(trainers: Trainers, chaos_dir: Path, chaos_settings: dict[str, Any]) -> Path:
    """Folder of a run that nothing has happened to."""
    run_dir = chaos_dir / "undisturbed" / "run"
    trainers.start(run_dir, chaos_settings)
    assert trainers.status() == 0, run_dir.with_name("trainer.log").read_text()
    return run_dir


@pytest.fixture(scope="session")
def watch() -> type[Watch]:
    return Watch


@pytest.fixture(scope="session")
def state_of() -> Any:
    """`state_of(run_dir)`: everything in last.pt that decides how a run goes on, by name, and results.csv."""

    def read(run_dir: Path) -> dict[str, Any]:
        content = read_training_checkpoint(run_dir / "weights" / "last.pt")
        training = content["training"]
        parts = {
            "model": content["model"],
            "ema": content["ema"],
            "rng": training["rng"],
            "late": training["gradients"],
        }
        parts |= training["optimizer"]["state"]
        tensors = {
            f"{part}.{name}": (str(value.dtype), tuple(value.shape), value.numpy().tobytes())
            for part, values in parts.items()
            for name, value in values.items()
            if isinstance(value, torch.Tensor)
        }
        rows = (run_dir / "results.csv").read_text()
        return {**tensors, **training["progress"], "ema_updates": training["ema_updates"], "results.csv": rows}

    return read
