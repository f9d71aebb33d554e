"""Writes checkpoints in a thread, so that the device goes on with validation or the next epoch meanwhile."""

import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from yolov9.engine.checkpoint import write_checkpoint
from yolov9.logs import LOG

MEGABYTE = 1_000_000
MOST_WAITING = 8
"""Files that may wait: each holds its content in memory, and `--save-period` makes new ones for ever."""


@dataclass(frozen=True)
class WriteJob:
    """One file to write."""

    path: Path
    content: dict[str, Any]
    """Tensors in it belong to the writer: nobody changes them any more."""
    keep_previous: bool = False


class CheckpointWriter:
    """Writes one file at a time, in the order of submission; training waits only when `MOST_WAITING` files wait.

    A file that still waits when a newer content for it comes is left out: with epochs shorter than a write the newest
    state is written over and over, not every one. A failed write is logged, the older file stays.
    """

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._waiting: dict[Path, WriteJob] = {}
        self._thread: threading.Thread | None = None
        self.errors: dict[Path, str] = {}
        """Why the latest write of a file failed; only of those that did."""

    def submit(self, job: WriteJob) -> None:
        """Has a file written once those before it are complete."""
        with self._lock:
            self._lock.wait_for(lambda: job.path in self._waiting or len(self._waiting) < MOST_WAITING)
            self._waiting[job.path] = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_all, name="checkpoint-writer")
                self._thread.start()

    def wait(self) -> None:
        """Returns when nothing is being written any more."""
        while (thread := self._thread) is not None:
            thread.join()

    def _write_all(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                job = self._waiting.pop(next(iter(self._waiting)))
                self._lock.notify_all()
            self._write(job)

    def _write(self, job: WriteJob) -> None:
        try:
            write_checkpoint(job.path, job.content, keep_previous=job.keep_previous)
        except Exception as error:  # Also of memory, which torch has names of its own for: the thread has to go on.
            reason = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
            self.errors[job.path] = reason
            LOG.error("%s could not be written: %s (%s); the file before it stays", job.path, reason, _free(job.path))
        else:
            self.errors.pop(job.path, None)

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wait()


def _free(path: Path) -> str:
    try:
        return f"{shutil.disk_usage(path.parent).free / MEGABYTE:.0f} MB free there"
    except OSError:
        return "its folder cannot be reached"
