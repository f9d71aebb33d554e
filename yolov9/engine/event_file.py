"""TensorBoard event files, written by the thread that calls.

TensorBoard's own writer has a thread; when that cannot write, its traceback is all that is seen.
"""

import io
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PREFIX = "events.out.tfevents."


class EventFile:
    """Scalars of a run, in a new file.

    Args:
        folder: run folder.
        first_step: TensorBoard hides points of this step and later ones from files of earlier starts.

    Raises:
        ImportError: the tensorboard package is not installed.
        OSError: the file cannot be made.
    """

    def __init__(self, folder: Path, first_step: int = 0) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary, self._record_writer = Event, Summary, RecordWriter
        name = f"{PREFIX}{_next_stamp(folder):010d}.{socket.gethostname()}.{os.getpid()}"
        self._descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._size = 0
        self._waiting = b""
        self._encode(Event(file_version="brain.Event:2", step=first_step))
        self._encode(Event(session_log=SessionLog(status=SessionLog.START), step=first_step))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Adds one point to each curve.

        Raises:
            OSError: not written; the points are kept and written with the next ones.
        """
        points = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._encode(self._event(summary=self._summary(value=points), step=step))
        self._write()

    def close(self) -> None:
        """Writes what is left, and closes the file.

        Raises:
            OSError: not written; the file is closed all the same.
        """
        try:
            self._write()
        finally:
            os.close(self._descriptor)

    def _write(self) -> None:
        while self._waiting:
            # At a place, so that a record that was written in part before an error is written again.
            written = os.pwrite(self._descriptor, self._waiting, self._size)
            self._size, self._waiting = self._size + written, self._waiting[written:]

    def _encode(self, event: Any) -> None:
        event.wall_time = time.time()
        record = io.BytesIO()
        self._record_writer(record).write(event.SerializeToString())
        self._waiting += record.getvalue()


def _next_stamp(folder: Path) -> int:
    """Seconds of the clock, or more: TensorBoard reads files in the order of their names, and clocks are set back."""
    stamps = (path.name.removeprefix(PREFIX).partition(".")[0] for path in folder.glob(f"{PREFIX}*"))
    return max([round(time.time()), *(int(stamp) + 1 for stamp in stamps if stamp.isdecimal())])
