"""What processes have used so far, from /proc; and what they used in between."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
"""Unit of the times in /proc/PID/stat."""
OWN_TIMES = slice(11, 13)
"""proc(5): places of utime and stime in /proc/PID/stat, counted from the field after the program's name."""
OWN_AND_CHILDREN = slice(11, 15)
"""The same and those of children that were waited for."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Use of CPU and storage; of one process since its start, or of several in between."""

    cpu_s: float = 0.0
    runnable_s: float = 0.0
    """Time in which it could have run and no CPU was free."""
    read_bytes: int | None = None
    """Fetched from storage, not from the kernel's file cache; None when the kernel does not tell."""

    def __add__(self, other: "Usage") -> "Usage":
        return self._combined(other, 1)

    def __sub__(self, other: "Usage") -> "Usage":
        return self._combined(other, -1)

    def _combined(self, other: "Usage", sign: int) -> "Usage":
        known = self.read_bytes is not None and other.read_bytes is not None
        return Usage(
            cpu_s=self.cpu_s + sign * other.cpu_s,
            runnable_s=self.runnable_s + sign * other.runnable_s,
            read_bytes=(self.read_bytes or 0) + sign * (other.read_bytes or 0) if known else None,
        )


def read_usage(pid: int, root: Path = Path("/proc")) -> Usage | None:
    """Returns what a process has used, or None when it has ended."""
    folder = root / str(pid)
    try:
        ticks = _ticks(folder, OWN_TIMES)
    except OSError:
        return None
    return Usage(cpu_s=ticks / TICKS_A_SECOND, runnable_s=_runnable_s(folder), read_bytes=_read_bytes(folder))


def tree_cpu_s(pid: int, root: Path = Path("/proc")) -> float:
    """Returns the CPU time of a process and all below it so far, those that have ended and were reaped included."""
    total, left = 0, [pid]
    while left:
        folder = root / str(left.pop())
        try:
            total += _ticks(folder, OWN_AND_CHILDREN)
            for task in (folder / "task").iterdir():
                left += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # it has just ended
    return total / TICKS_A_SECOND


@dataclass
class UsageMeter:
    """What some processes use from now on; one that ends meanwhile counts up to the last look."""

    pids: Iterable[int]
    _before: dict[int, Usage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._before = {pid: usage for pid in self.pids if (usage := read_usage(pid)) is not None}

    def used(self) -> Usage:
        """Returns the sum over all processes since this object was made."""
        total = Usage(read_bytes=0)
        for pid, before in self._before.items():
            now = read_usage(pid)
            if now is not None:
                total = total + (now - before)
        return total


def _ticks(folder: Path, times: slice) -> int:
    words = (folder / "stat").read_text().rpartition(")")[2].split()  # the name may hold blanks and brackets
    return sum(int(word) for word in words[times])


def _runnable_s(folder: Path) -> float:
    """Second number of schedstat, in nanoseconds; 0 where the kernel does not count it."""
    try:
        return int((folder / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _read_bytes(folder: Path) -> int | None:
    try:
        lines = (folder / "io").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("read_bytes:")), None)
