"""Copies that several jobs use together: one makes it, the others wait and use it, the last one removes it.

Each copy is a folder `KEY` beside a file `KEY.lock`. Who makes or removes the folder holds the lock alone; who uses it
holds it together with others. The kernel drops the lock of a process that dies, so a copy that a killed job left
behind can be told apart from one in use.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from entrypoint.staging.files import FORMAT, DataFiles, StageError, place_in
from yolov9.logs import LOG

MARKER = "complete.json"
"""Written last; a folder without it is not a copy."""
OWN_MODE = 0o700


def stage_root(target: Path, uid: int) -> Path:
    """Returns the folder among others' files that holds this user's copies."""
    return target / f"yolov9-stage-{uid}"


def make_root(target: Path) -> Path:
    """Makes that folder.

    Raises:
        StageError: it cannot be made, or somebody else made it.
    """
    root = stage_root(target, os.getuid())
    try:
        root.mkdir(mode=OWN_MODE, parents=True, exist_ok=True)
        if root.is_symlink() or root.stat().st_uid != os.getuid():
            raise StageError(f"{root} belongs to somebody else")
    except OSError as error:
        raise StageError(f"{root}: {error.strerror}") from None
    return root


def is_complete(folder: Path, files: DataFiles) -> bool:
    """Says whether a folder holds a whole copy: the marker is there, and each file with its size and time."""
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        if marker["format"] != FORMAT or marker["files"] != len(files.entries):
            return False
        for entry in files.entries:
            status = place_in(folder, entry.path).stat()
            if (status.st_size, status.st_mtime_ns) != (entry.size, entry.mtime_ns):
                return False
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return True


def mark_complete(folder: Path, files: DataFiles) -> None:
    """Writes the marker, complete or not at all."""
    content = {"format": FORMAT, "files": len(files.entries)}
    temporary = folder / f"{MARKER}.tmp"
    temporary.write_text(json.dumps(content), encoding="utf-8")
    temporary.replace(folder / MARKER)


class SharedCopy:
    """This process's part in a copy. `release` it, whatever happens.

    Args:
        root: folder of this user's copies.
        files: the data set.
        make: fills an empty folder with the copy, all but the marker.
    """

    def __init__(self, root: Path, files: DataFiles, make: Callable[[Path], None]) -> None:
        self.folder = root / files.key
        self.made_here = False
        """This process copied the files."""
        self._files = files
        self._make = make
        self._lock_path = _lock_path(root, files.key)
        self._fd: int | None = None

    def acquire(self) -> None:
        """Returns when a complete copy is there and cannot be removed by others.

        Raises:
            StageError: it could not be made.
        """
        while True:
            fd = _open_lock(self._lock_path)
            try:
                self._make_or_wait(fd)
                # Between the two kinds of lock, somebody may have removed the copy.
                if _is_current(fd, self._lock_path) and is_complete(self.folder, self._files):
                    self._fd = fd
                    return
            finally:
                if self._fd is None:
                    os.close(fd)

    def _make_or_wait(self, fd: int) -> None:
        """Ends with the lock held together with others."""
        if not _lock_alone(fd):
            if not (self.folder / MARKER).is_file():
                LOG.info("staging: another job is copying this data set; waiting for it")
            fcntl.flock(fd, fcntl.LOCK_SH)
            return
        if _is_current(fd, self._lock_path) and not is_complete(self.folder, self._files):
            try:
                _remove(self.folder)
                self.folder.mkdir(mode=OWN_MODE)
                self._make(self.folder)
                mark_complete(self.folder, self._files)
                self.made_here = True
            except BaseException as error:
                _remove(self.folder)
                self._lock_path.unlink(missing_ok=True)
                if isinstance(error, OSError):
                    raise StageError(f"{self.folder}: {error.strerror}") from None
                raise
        fcntl.flock(fd, fcntl.LOCK_SH)

    def release(self) -> bool:
        """Gives the copy up; removes it when nobody else uses it. Returns whether it was removed."""
        if self._fd is None:
            return False
        fd, self._fd = self._fd, None
        try:
            return _remove_if_unused(fd, self.folder, self._lock_path)
        finally:
            os.close(fd)


def sweep(root: Path, keep: str) -> None:
    """Removes copies that nobody uses any more, left behind by jobs that were killed.

    Args:
        root: folder of this user's copies; it need not exist.
        keep: key of a copy that stays.
    """
    try:
        keys = {path.name.removesuffix(".lock") for path in root.iterdir()} - {keep}
    except OSError:
        return
    for key in sorted(keys):
        try:
            fd = _open_lock(_lock_path(root, key))
        except StageError:
            continue
        try:
            if _remove_if_unused(fd, root / key, _lock_path(root, key)):
                LOG.info("staging: removed %s, which no job uses", root / key)
        finally:
            os.close(fd)


def _lock_path(root: Path, key: str) -> Path:
    return root / f"{key}.lock"


def _open_lock(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StageError(f"{path}: {error.strerror}") from None


def _lock_alone(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StageError(f"this file system has no locks: {error.strerror}") from None
    return True


def _remove_if_unused(fd: int, folder: Path, lock_path: Path) -> bool:
    """The lock file goes last, and only while it is held: a job that opened it before sees that it is gone."""
    if not _lock_alone(fd) or not _is_current(fd, lock_path):
        return False
    _remove(folder)
    lock_path.unlink(missing_ok=True)
    return True


def _is_current(fd: int, path: Path) -> bool:
    """False when the lock file was removed, and perhaps made anew, after it was opened."""
    try:
        now, held = path.stat(), os.fstat(fd)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) == (held.st_dev, held.st_ino)


def _remove(folder: Path) -> None:
    """The marker goes first, so that an interrupted removal leaves nothing that looks complete."""
    (folder / MARKER).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
