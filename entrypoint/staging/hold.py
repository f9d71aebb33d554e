"""A copy of the data set on faster storage, for the time of a run.

The copy is used when it is complete and of exactly this version of the data set; otherwise the run reads the original.
Nothing is ever written into the original.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from entrypoint.staging.copy import copy_files
from entrypoint.staging.files import DATA_FILE, DataFiles, StageError, find_files, write_data_file
from entrypoint.staging.share import SharedCopy, make_root
from entrypoint.stop_signals import stops_ignored
from entrypoint.units import size_text
from yolov9.config.environment import Environment
from yolov9.logs import LOG
from yolov9.read_watch import ReadWatch


@contextmanager
def data_copy(data: str, target: str, environment: Environment, watch: ReadWatch | None = None) -> Iterator[str]:
    """Holds a copy of a data set; yields the path of its data.yaml, "" when there is none (said in the log).

    The copy is also removed after an error, and after a stop that is a KeyboardInterrupt (`stop_is_interrupt`).

    Args:
        data: data.yaml of the original.
        target: folder that the plan has chosen.
        environment: where the original's cache lies.
        watch: open while files are read.
    """
    with watch or nullcontext():
        copy = _acquire(data, Path(target), environment)
    try:
        yield "" if copy is None else str(copy.folder / DATA_FILE)
    finally:
        with stops_ignored():
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
