"""A copy of the data set on faster storage, for the time of a run.

The copy is used when it is complete and of exactly this version of the data set; otherwise the run reads the original.
Nothing is ever written into the original.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from entrypoint.staging.copy import copy_files
from entrypoint.staging.files import DATA_FILE, DataFiles, StageError, find_files, write_data_file
from entrypoint.staging.share import SharedCopy, make_root
from entrypoint.units import size_text
from yolov9.config.environment import Environment
from yolov9.logs import LOG

STOPS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def data_copy(data: str, target: str, environment: Environment) -> Iterator[str]:
    """Holds a copy of a data set; yields the path of its data.yaml, "" when there is none (said in the log).

    A stop signal is a KeyboardInterrupt inside, so that the copy is removed. It is also removed after an error.

    Args:
        data: data.yaml of the original.
        target: folder that the plan has chosen.
        environment: where the original's cache lies.
    """
    with _stop_is_interrupt():
        copy = _acquire(data, Path(target), environment)
        try:
            yield "" if copy is None else str(copy.folder / DATA_FILE)
        finally:
            with _stops_ignored():
                if copy is not None and copy.release():
                    LOG.info("staging: the copy is removed")


def _acquire(data: str, target: Path, environment: Environment) -> SharedCopy | None:
    try:
        files = find_files(data, environment)
        copy = SharedCopy(make_root(target), files, lambda folder: _fill(files, folder))
        copy.acquire()
    except StageError as error:
        LOG.warning("staging: %s; the original is used", error)
        return None
    done = "copied to" if copy.made_here else "a copy that another job made is used:"
    LOG.info("staging: %s %s (%s)", done, copy.folder, size_text(files.size_bytes))
    return copy


def _fill(files: DataFiles, folder: Path) -> None:
    copy_files(files, folder)
    write_data_file(files, folder)


@contextmanager
def _stop_is_interrupt() -> Iterator[None]:
    """Without a handler SIGTERM would end this process at once, or not at all when it is process 1.

    Only the first signal counts: a second one must not break off the removal of the copy.
    """
    heard = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        if not heard:
            heard = True
            raise KeyboardInterrupt

    with _handlers(interrupt):
        yield


@contextmanager
def _stops_ignored() -> Iterator[None]:
    with _handlers(signal.SIG_IGN):
        yield


@contextmanager
def _handlers(handler: "signal._HANDLER") -> Iterator[None]:
    former = {number: signal.signal(number, handler) for number in STOPS}
    try:
        yield
    finally:
        for number, was in former.items():
            signal.signal(number, was)
