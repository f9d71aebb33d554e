"""Files that are either complete or not there: temporary file, flush to disk, rename, flush of the folder."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

TEMPORARY_SUFFIX = ".partial"
PREVIOUS_SUFFIX = "-previous"


class RememberingFile:
    """A file for writers that do not stand errors: the first error is kept, and later writes do nothing.

    Args:
        file: the real file.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Writes, or remembers why it did not; always claims success."""
        if self.error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self.error = error
        return len(data)

    def flush(self) -> None:
        """Does nothing: the owner of the file flushes it."""


def previous_of(path: Path) -> Path:
    """Path of the generation before: `last.pt` -> `last-previous.pt`."""
    return path.with_name(f"{path.stem}{PREVIOUS_SUFFIX}{path.suffix}")


def write_atomically(
    path: Path, write: Callable[[RememberingFile], None], *, keep_previous: bool = False, durable: bool = True
) -> None:
    """Replaces a file at once; after a crash at any moment the old or the new content is there, never a part.

    Args:
        path: file to replace; its folder exists.
        write: writes the whole content.
        keep_previous: the replaced file stays under `previous_of(path)`.
        durable: wait until the disk has it; without, a power cut may lose it, while the end of the program cannot.

    Raises:
        OSError: the content could not be written; the file is as it was.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        with temporary.open("wb") as file:
            target = RememberingFile(file)
            write(target)
            if target.error is not None:
                raise target.error
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if keep_previous and path.exists():
            _keep_as(path, previous_of(path))
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        _flush_folder(path.parent)


def write_text_atomically(path: Path, text: str, *, durable: bool = True) -> None:
    """Replaces a text file at once, in UTF-8; `durable` as for `write_atomically`."""
    write_atomically(path, lambda file: _write_all(file, text.encode()), durable=durable)


def _write_all(file: RememberingFile, data: bytes) -> None:
    file.write(data)


def _keep_as(path: Path, previous: Path) -> None:
    """Gives the old file a second name first, so that at no moment neither name holds a complete file."""
    link = previous.with_name(previous.name + TEMPORARY_SUFFIX)
    link.unlink(missing_ok=True)
    try:
        link.hardlink_to(path)
    except OSError:
        # File systems without hard links: for a moment only the previous name holds a complete file.
        path.replace(previous)
        return
    link.replace(previous)


def _flush_folder(folder: Path) -> None:
    """Makes the rename durable; some network file systems cannot, and do not need to."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
