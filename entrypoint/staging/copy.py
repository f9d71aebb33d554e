"""Copies the files of a data set, several at a time, and says how far it is."""

import os
import shutil
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from entrypoint.staging.files import DataFiles, FileEntry, StageError, place_in
from entrypoint.units import size_text
from yolov9.logs import LOG
from yolov9.read_watch import reading

COPY_THREADS = 8
"""Small files on a network mount wait for answers most of the time; eight at once hide that, also on one CPU."""
FILES_A_TASK = 32
PROGRESS_S = 5.0
"""Time between two lines about the progress."""


def copy_files(files: DataFiles, folder: Path) -> None:
    """Copies all files into a folder, with their times.

    Raises:
        StageError: no space, a read error, or a file that changed meanwhile; what was copied is left to the caller.
    """
    for parent in sorted({place_in(folder, entry.path).parent for entry in files.entries}):
        parent.mkdir(parents=True, exist_ok=True)
    progress = _Progress(files)
    stop = threading.Event()
    tasks = [files.entries[start : start + FILES_A_TASK] for start in range(0, len(files.entries), FILES_A_TASK)]
    pool = ThreadPoolExecutor(COPY_THREADS, thread_name_prefix="stage")
    try:
        pending = {pool.submit(_copy_some, task, folder, progress, stop) for task in tasks}
        while pending:
            done, pending = wait(pending, PROGRESS_S, FIRST_EXCEPTION)
            for task_done in done:
                task_done.result()
            if pending:
                progress.log()
    except OSError as error:
        raise StageError(f"{error.filename2 or error.filename or folder}: {error.strerror}") from None
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
    progress.log()


def _copy_some(entries: Sequence[FileEntry], folder: Path, progress: "_Progress", stop: threading.Event) -> None:
    for entry in entries:
        if stop.is_set():
            return
        _copy_one(entry, place_in(folder, entry.path))
        progress.add(entry.size)


def _copy_one(entry: FileEntry, place: Path) -> None:
    with reading(entry.path):
        shutil.copyfile(entry.path, place)
        now = Path(entry.path).stat()
    if (now.st_size, now.st_mtime_ns, now.st_ctime_ns) != (entry.size, entry.mtime_ns, entry.ctime_ns):
        raise StageError(f"{entry.path} changed while the data set was copied")
    if place.stat().st_size != entry.size:
        raise StageError(f"{entry.path} could not be copied in full")
    os.utime(place, ns=(entry.mtime_ns, entry.mtime_ns))


class _Progress:
    def __init__(self, files: DataFiles) -> None:
        self._files, self._bytes = len(files.entries), files.size_bytes
        self._lock = threading.Lock()
        self._done_files = self._done_bytes = 0
        self._begun = time.monotonic()

    def add(self, size: int) -> None:
        with self._lock:
            self._done_files += 1
            self._done_bytes += size

    def log(self) -> None:
        speed = self._done_bytes / max(time.monotonic() - self._begun, 1e-9)
        LOG.info(
            "staging: %d of %d files, %s of %s, %s/s",
            self._done_files,
            self._files,
            size_text(self._done_bytes),
            size_text(self._bytes),
            size_text(speed),
        )
