"""Trainings that are killed at random moments and resumed end with the weights of a run that nothing happened to.

The kill is SIGKILL to a real process, alone or together with its loader processes. Eight runs by default; `make chaos`
asks for 200. Seeds are fixed; when exactly the kill arrives is up to the machine.
"""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from yolov9.engine.atomic_file import TEMPORARY_SUFFIX, previous_of
from yolov9.engine.checkpoint import newest_loadable

LAST, RESULTS = "last.pt", "results.csv"
MARKS = {
    "at any time": None,
    "when a save begins": (LAST + TEMPORARY_SUFFIX, "made"),
    "while a save is written": (LAST + TEMPORARY_SUFFIX, "written"),
    "when the generation before is kept": ("last-previous.pt", "renamed"),
    "when a save is complete": (LAST, "renamed"),
    "when results are written": (RESULTS + TEMPORARY_SUFFIX, "written"),
    "when results are complete": (RESULTS, "renamed"),
    "when the best weights are complete": ("best.pt", "renamed"),
}
"""What is waited for before a kill: a file of the run and what happens to it."""
EPOCHS = 3
RUN_S = 2.0
"""About the time of an undisturbed run."""
MOST_KILLS = 4
LATER_S = (0.0, 0.001, 0.005, 0.02, 0.1)
"""How long after the mark the kill is sent; 0.02 and 0.1 fall into steps and validations."""
LEFT_S = 15.0
"""How long loader processes of a killed trainer may live on."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--chaos-runs")))


class Chaos:
    """Kills trainings at marks.

    Args:
        trainers, watch: see conftest.py.
        seed: decides where, when, how often, and what is killed.
    """

    def __init__(self, trainers: Any, watch: Any, seed: int) -> None:
        self._trainers = trainers
        self._watch = watch
        self.rng = np.random.default_rng(seed)

    def run_and_kill(self, run_dir: Path, settings: dict[str, Any]) -> tuple[str, int]:
        """Trains and kills; returns the mark and how the trainer ended (it may have come to its end before)."""
        mark = str(self.rng.choice(list(MARKS)))
        wanted, times = MARKS[mark], int(self.rng.integers(1, EPOCHS + 1))
        later_s = float(self.rng.choice(LATER_S)) if wanted else float(self.rng.uniform(0, RUN_S))
        with self._watch(run_dir, run_dir / "weights") as watch:
            pid = self._trainers.start(run_dir, settings)
            while wanted and times > 0 and not self._trainers.ended(60, watch.descriptor):
                times -= watch.read().count(wanted)
            self._trainers.ended(later_s)
            self._kill(pid)
        return mark, self._trainers.status()

    def _kill(self, pid: int) -> None:
        """Kills the trainer, alone or with all its processes."""
        try:
            if self.rng.random() < 0.5:
                os.kill(pid, signal.SIGKILL)
            else:
                os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # It had come to its end.


def alive_in_group(group: int) -> list[str]:
    """Commands of the processes of a group that are not zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = stat.read_text().rsplit(") ", 1)
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, _, its_group = rest.split()[:3]
        if int(its_group) == group and state != "Z":
            found.append(name)
    return found


def resumed(settings: dict[str, Any], run_dir: Path) -> dict[str, Any]:
    """Settings of the next start: what a person types, who looks whether there is a checkpoint."""
    last = run_dir / "weights" / LAST
    return {**settings, "resume": str(run_dir)} if last.exists() or previous_of(last).exists() else settings


def where(run_dir: Path) -> str:
    """What was going on when a run was killed, by what it left."""
    last = run_dir / "weights" / LAST
    if last.with_name(LAST + TEMPORARY_SUFFIX).exists():
        return "in a save"
    if not last.exists():
        return "before the first checkpoint" if not previous_of(last).exists() else "between two names of a checkpoint"
    progress = newest_loadable(run_dir)[1]["training"]["progress"]
    if progress["finished"]:
        return "after the last epoch"
    return "in validation or results" if progress["batch"] == 3 else "in a step or between files"


def test_a_killed_run_ends_like_the_undisturbed_one(
    tmp_path: Path,
    trainers: Any,
    watch: Any,
    undisturbed: Path,
    chaos_settings: dict[str, Any],
    state_of: Callable[[Path], dict[str, Any]],
    tally: Counter[str],
    seed: int,
) -> None:
    chaos = Chaos(trainers, watch, seed)
    # Every other run also saves after each micro-batch, as a long epoch does by the clock.
    settings = {**chaos_settings, "save_minutes": 0.0 if seed % 2 else 10.0}
    run_dir, log = tmp_path / "run", tmp_path / "trainer.log"
    (run_dir / "weights").mkdir(parents=True)
    kills = 0
    for _ in range(int(chaos.rng.integers(1, MOST_KILLS + 1))):
        mark, status = chaos.run_and_kill(run_dir, resumed(settings, run_dir))
        if status == 0:
            break
        assert status == -signal.SIGKILL, f"{mark}: {log.read_text()}"
        kills += 1
        tally[f"kills {mark}"] += 1
        tally[f"left {where(run_dir)}"] += 1
        if where(run_dir) == "after the last epoch":
            break
    else:
        pid = trainers.start(run_dir, resumed(settings, run_dir))
        status = trainers.status()
        assert status == 0, log.read_text()
        assert alive_in_group(pid) == []
    tally["runs"] += 1
    tally[f"runs killed {kills} times"] += 1
    expected, found = state_of(undisturbed), state_of(run_dir)
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []
    best, good = (torch.load(run / "weights" / "best.pt", weights_only=True) for run in (undisturbed, run_dir))
    assert all(torch.equal(best["model"][name], good["model"][name]) for name in best["model"])


def test_loader_processes_of_a_killed_trainer_end_by_themselves(
    tmp_path: Path, trainers: Any, watch: Any, chaos_settings: dict[str, Any]
) -> None:
    (tmp_path / "run" / "weights").mkdir(parents=True)
    with watch(tmp_path / "run" / "weights") as files:
        pid = trainers.start(tmp_path / "run", chaos_settings)
        while MARKS["when a save begins"] not in files.read():
            assert not trainers.ended(60, files.descriptor)
    assert len(alive_in_group(pid)) > 1
    os.kill(pid, signal.SIGKILL)
    assert trainers.status() == -signal.SIGKILL
    deadline = time.monotonic() + LEFT_S
    while alive_in_group(pid):
        assert time.monotonic() < deadline, alive_in_group(pid)


def test_p39_the_log_is_lines_with_a_time_and_its_offset_and_nothing_is_redrawn(undisturbed: Path) -> None:
    log = undisturbed.with_name("trainer.log").read_bytes()
    assert b"\r" not in log
    assert b"\x1b" not in log
    lines = log.decode().splitlines()
    stamp = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} (INFO|WARNING|ERROR) ")
    assert [line for line in lines if not stamp.match(line)] == []
    assert [line.split("epoch ")[1].split(":")[0] for line in lines if " epoch " in line] == ["1/3", "2/3", "3/3"]
