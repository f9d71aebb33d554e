"""Bounded waiting for files: a mount that no longer answers ends the program with a word, not with silence.

A system call on a dead network mount cannot be broken off from within a process. So each thread notes what it is about
to read, and a watcher, which reads nothing, ends the process when one of them has not come back in time.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from yolov9.errors import DataError
from yolov9.logs import LOG

READ_TIMEOUT_S = 120.0
"""A slow network mount answers within seconds; loader processes have as long for a sample."""
LOOKS_A_TIMEOUT = 20
"""How often the watcher looks within the time that a file may take."""

_reading: dict[int, tuple[str, float]] = {}
"""Thread -> what it is reading, and since when (monotonic)."""


@contextmanager
def reading(path: object) -> Iterator[None]:
    """Notes that this thread waits for a file or folder. Inside of another one, the time of that one begins anew."""
    thread = threading.get_ident()
    before = _reading.get(thread)
    _reading[thread] = (str(path), time.monotonic())
    try:
        yield
    finally:
        if before is None:
            del _reading[thread]
        else:
            _reading[thread] = (before[0], time.monotonic())


def now_reading(path: object) -> None:
    """Inside of `reading`: this thread waits for another file now."""
    _reading[threading.get_ident()] = (str(path), time.monotonic())


class ReadWatch:
    """While it is open, a file that takes longer than `timeout_s` ends the process with exit code 65."""

    def __init__(self, timeout_s: float = READ_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="read watch", daemon=True)

    def __enter__(self) -> "ReadWatch":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        looks: Counter[tuple[int, tuple[str, float]]] = Counter()
        while not self._closed.wait(self._timeout_s / LOOKS_A_TIMEOUT):
            # Looks are counted, not seconds: while the process is paused, it does not wait for a file.
            looks = Counter({entry: looks[entry] + 1 for entry in list(_reading.items())})
            for (_, (path, _)), count in looks.items():
                if count > LOOKS_A_TIMEOUT:
                    _give_up(path, self._timeout_s)


def _give_up(path: str, waited_s: float) -> None:
    error = DataError(
        found=f"{path} has not answered for {waited_s:.0f} s",
        needed="files that can be read: its disk or mount hangs",
        remedy=f"ls -l {path}; it comes back when the mount is right again (train: --worker-timeout for a slow one)",
    )
    for line in str(error).splitlines():
        LOG.error("%s", line)
    os._exit(error.exit_code)  # The thread that waits would keep the interpreter from ending.
