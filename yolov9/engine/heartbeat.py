"""A sign of life of the trainer: one small file that says when the last step finished. `health` reads it.

It lies among the temporary files and not in the run folder: that may be a slow or full disk, and a copy of it elsewhere
must not look alive. Steps are counted when they were handed to the device; a device that hangs stops the count as soon
as the few batches between loader and device are used up.
"""

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from yolov9.config.environment import Environment
from yolov9.logs import LOG

START_FIELD = 22
"""Of `/proc/PID/stat`: when the process started."""
WRITE_INTERVAL_S = 1.0
"""Between two writes: a step of a small model takes some milliseconds, and nobody asks that often."""


@dataclass(frozen=True, kw_only=True)
class Beat:
    """What the file says."""

    doing: str
    """Where the trainer is, for people."""
    steps: int
    """Batches trained by this process."""
    at_s: float
    """When the last batch of training or validation finished; CLOCK_MONOTONIC, which all processes share."""
    longest_s: float
    """Longest time between two batches so far."""
    started_ticks: int | None = None
    """When the process started, in clock ticks since the machine did; tells it from an earlier one of the same number.

    In a container that is started again the numbers are the same, and the temporary files still there.
    """


def heartbeat_name(pid: int) -> str:
    """Returns the name of the file in which a process leaves its sign of life."""
    return f"yolov9-heartbeat-{pid}.json"


def heartbeat_file(environment: Environment, pid: int) -> Path:
    """Returns where a process leaves its sign of life."""
    return environment.temporary_dir / heartbeat_name(pid)


def read_heartbeat(file: Path, started_ticks: int | None = None) -> Beat | None:
    """Returns the newest sign of life of the process that started then, or None when there is none."""
    try:
        beat = Beat(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return None if started_ticks is not None and beat.started_ticks not in (None, started_ticks) else beat


def start_ticks(stat: str) -> int | None:
    """Returns field 22 of a `/proc/PID/stat`, see proc(5); None when it is not there."""
    fields = stat.rpartition(")")[2].split()  # The first of these is field 3.
    return int(fields[START_FIELD - 3]) if len(fields) > START_FIELD - 3 else None


class Heartbeat:
    """Writes the file; whatever goes wrong with it never disturbs the training.

    Args:
        file: where to; None on ranks that write none.
        clock: seconds, monotonic.
    """

    def __init__(self, file: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._started_ticks = _own_start_ticks()
        self._steps = 0
        self._longest_s = 0.0
        self._last_s: float | None = None
        self._written_s = float("-inf")

    def __enter__(self) -> "Heartbeat":
        self._write("starting", self._clock())
        self._written_s = float("-inf")  # The first step is written at once.
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)

    def step(self, doing: str) -> None:
        """Tells that a batch of training finished."""
        self._steps += 1
        self.beat(doing)

    def beat(self, doing: str) -> None:
        """Tells that a piece of other work finished, such as a batch of validation."""
        now = self._clock()
        if self._last_s is not None:
            self._longest_s = max(self._longest_s, now - self._last_s)
        self._last_s = now
        if now - self._written_s >= WRITE_INTERVAL_S:
            self._write(doing, now)

    def _write(self, doing: str, now: float) -> None:
        if self._file is None:
            return
        self._written_s = now
        beat = Beat(
            doing=doing,
            steps=self._steps,
            at_s=now,
            longest_s=self._longest_s,
            started_ticks=self._started_ticks,
        )
        new = self._file.with_suffix(".new")
        try:
            # Exclusive, so that a link somebody else left among the temporary files is not followed.
            new.unlink(missing_ok=True)
            with new.open("x", encoding="utf-8") as file:
                json.dump(asdict(beat), file)
            new.replace(self._file)
        except OSError as error:
            LOG.info(
                "no heartbeat for `health`: %s: %s; docker run --tmpfs /tmp", self._file, os.strerror(error.errno or 0)
            )
            self._file = None


def _own_start_ticks() -> int | None:
    try:
        return start_ticks(Path("/proc/self/stat").read_text(errors="replace"))
    except OSError:
        return None
