"""`health`: does the trainer of this container make progress? Asked by Docker's HEALTHCHECK every half minute."""

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from entrypoint.host.shm import SHM_DIR
from entrypoint.options import Parser
from yolov9.config.environment import read_environment
from yolov9.engine.heartbeat import Beat, heartbeat_name, read_heartbeat, start_ticks
from yolov9.logs import show_text

STOPPED_STATES = {"T": "is stopped by a signal", "t": "is held by a debugger"}
"""Process states of proc(5) in which a trainer makes no progress."""
UNHEALTHY = 1
"""The exit code that Docker defines for it."""
TIMEOUT_S = 300.0
"""Longest time without a finished batch: compiling, a slow disk's checkpoint and the pictures of an epoch take less."""
START_TIMEOUT_S = 3600.0
"""Longest time until the first batch: checking a large data set on a network mount takes many minutes."""
SLACK = 3
"""On slow machines a batch may take minutes; this many times the longest one so far is not yet a hang."""


@dataclass(frozen=True)
class TrainerProcess:
    """A process that runs a plan."""

    pid: int
    state: str
    """One letter as in proc(5)."""
    plan_file: str
    started_ticks: int | None = None
    """As in `Beat`; None when the tree does not say."""


@dataclass(frozen=True)
class Health:
    """What is said about one job."""

    good: bool
    words: str


def run_health(argv: Sequence[str]) -> int:
    """Prints one line; returns 0, or 1 when a job is there and does not go on. No job at all is healthy."""
    parser = Parser(prog="health", description="Tells whether the trainer of this container goes on.")
    parser.add_argument("--root", type=Path, default=Path("/"), help="folder with a proc tree to read")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=TIMEOUT_S,
        help="seconds without a finished batch; default 300, or three times the longest batch so far if that is more; "
        "an hour before the first",
    )
    parser.add_argument("--steps", type=_steps, default=0, help="unhealthy until a job has trained so many batches")
    options = parser.parse_args(argv)
    trainers = list(find_trainers(options.root / "proc"))
    environment = read_environment()
    found = []
    for plan_file in dict.fromkeys(trainer.plan_file for trainer in trainers):
        processes = [trainer for trainer in trainers if trainer.plan_file == plan_file]
        beats = [
            read_heartbeat(folder / heartbeat_name(process.pid), process.started_ticks)
            for folder in (environment.temporary_dir, Path(SHM_DIR))
            for process in processes
        ]
        # Of several ranks one has a heartbeat; a training that is still loading its libraries and other jobs have none.
        # With a read-only /tmp the plan has moved the trainer's temporary files to /dev/shm.
        beat = next((beat for beat in beats if beat is not None), None)
        found.append(judge(processes, beat, time.monotonic(), timeout_s=options.timeout, steps=options.steps))
    if not found:
        found.append(Health(options.steps == 0, "no job runs"))
    show_text("; ".join(health.words for health in found))
    return 0 if all(health.good for health in found) else UNHEALTHY


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")


def _steps(text: str) -> int:
    with suppress(ValueError):
        if int(text) >= 0:
            return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 up")


def judge(
    processes: Sequence[TrainerProcess], beat: Beat | None, now_s: float, *, timeout_s: float, steps: int
) -> Health:
    """Says how one job is.

    Args:
        processes: all processes of the job, at least one.
        beat: its newest sign of life, if any.
        now_s: CLOCK_MONOTONIC.
        timeout_s: longest time without a finished batch.
        steps: batches that have to be trained before it counts as healthy.
    """
    name = processes[0].plan_file
    stopped = [f"process {p.pid} {STOPPED_STATES[p.state]} ({name})" for p in processes if p.state in STOPPED_STATES]
    if stopped:
        return Health(False, ", ".join(stopped))
    if beat is None:
        return Health(steps == 0, f"{name} runs" if steps == 0 else f"{name}: no step yet")
    age_s = now_s - beat.at_s
    limit_s = max(timeout_s, SLACK * beat.longest_s) if beat.steps else max(timeout_s, START_TIMEOUT_S)
    since = f"{beat.doing}, {beat.steps} steps, the last sign of life {age_s:.0f} s ago"
    if age_s > limit_s:
        return Health(False, f"{name}: nothing finished within {limit_s:.0f} s ({since})")
    if beat.steps < steps:
        return Health(False, f"{name}: {since}; {steps} steps are waited for")
    return Health(True, f"{name}: {since}")


def find_trainers(proc: Path) -> Iterator[TrainerProcess]:
    """Yields the processes started as `python … -m yolov9 PLAN.json`; those that end meanwhile are passed over."""
    for folder in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            stat = (folder / "stat").read_text(errors="replace")
            state = stat.rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            continue
        if "yolov9" in words and words[words.index("yolov9") - 1] == "-m":
            yield TrainerProcess(int(folder.name), state, words[-1], start_ticks(stat))
