"""Lists the pictures of a split and tells where the label file of a picture lies."""

import errno
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from yolov9.data.split_paths import resolve_entry
from yolov9.decode_text import decode_text
from yolov9.errors import DataError
from yolov9.logs import LOG
from yolov9.read_watch import now_reading, reading

IMAGE_SUFFIXES = frozenset(
    {".avif", ".bmp", ".dng", ".gif", ".jp2", ".jpeg", ".jpg", ".mpo", ".pfm", ".png", ".tif", ".tiff", ".webp"}
)
"""Names that belong to the data set, in lower case; whether a file can be read is told by its content."""
FOREIGN_SUFFIXES = frozenset({".arw", ".cr2", ".heic", ".heif", ".jxl", ".nef", ".psd", ".svg"})
"""Pictures that people have in data sets and that no decoder here reads; they are listed as left out."""
LISTED_SUFFIXES = IMAGE_SUFFIXES | FOREIGN_SUFFIXES
_SHOWN_LINE = 60
ENTRIES_BETWEEN_SIGNS = 1000
"""Names that are read from a folder before it counts as having answered: it may be large, and its mount slow."""


def list_pictures(sources: tuple[Path, ...], root: Path) -> list[str]:
    """Lists the pictures in folders (with sub-folders) and list files.

    Hidden files and folders ("._x.jpg", ".ipynb_checkpoints") and files that are no pictures by name are no part of the
    data set.

    Args:
        sources: existing folders and list files.
        root: folder of the data set; list entries are looked for beside the list file, then here.

    Returns:
        Absolute paths, sorted; bytes that are no text in this locale are kept (`os.fsencode` gives them back).

    Raises:
        DataError: a folder or list file cannot be read.
    """
    pictures: list[str] = []
    for source in sources:
        with reading(source):
            is_folder = source.is_dir()
        if is_folder:
            pictures.extend(_in_folder(source))
        else:
            pictures.extend(_read_list(source, root))
    return sorted(pictures)


def label_path_of(picture: str) -> str:
    """Returns the label file of a picture: the last "/images/" becomes "/labels/", the suffix becomes ".txt"."""
    head, found, tail = picture.rpartition("/images/")
    path = f"{head}/labels/{tail}" if found else picture
    dot = path.rfind(".")
    return (path[:dot] if dot > path.rfind("/") + 1 else path) + ".txt"


def _in_folder(source: Path) -> list[str]:
    try:
        return list(_walk(str(source), set()))
    except OSError as error:
        raise DataError(
            f"{error.filename or source}: {error.strerror}",
            "a data set whose folders can all be read",
            f"chmod -R a+rX {shlex.quote(str(source))}",
        ) from None


def _walk(folder: str, visited: set[tuple[int, int]]) -> Iterator[str]:
    with reading(folder):
        status = Path(folder).stat()
    if (status.st_dev, status.st_ino) in visited:
        return  # a link that leads back up
    visited.add((status.st_dev, status.st_ino))
    with reading(folder), os.scandir(folder) as entries:
        for number, entry in enumerate(entries, 1):
            if number % ENTRIES_BETWEEN_SIGNS == 0:
                now_reading(folder)
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and _leads_to_folder(entry)):
                yield from _walk(entry.path, visited)
            elif _is_picture(entry.name):
                yield entry.path


def _leads_to_folder(link: os.DirEntry[str]) -> bool:
    try:
        with reading(link.path):
            return link.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # links that lead to each other
            return False
        raise


def _is_picture(name: str) -> bool:
    # Not `Path(name).suffix`: that takes longer than reading the folder.
    stem, _, suffix = name.rpartition(".")
    return stem != "" and f".{suffix.lower()}" in LISTED_SUFFIXES


def _read_list(file: Path, root: Path) -> Iterator[str]:
    try:
        with reading(file):
            text = decode_text(file.read_bytes(), "surrogateescape")
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}", "a readable list of picture paths", f"chmod a+r {file}") from None
    others: list[str] = []
    for line in text.splitlines():
        value = unquoted(line)
        if not value or value.startswith("#"):
            continue
        if not _is_picture(value):
            others.append(value)
            continue
        entry = resolve_entry(value, file.parent, root)
        yield str(entry.found or entry.tried[0])
    if others:
        first = others[0][:_SHOWN_LINE]
        LOG.warning("%s: %d lines name no picture and are left out, the first is %r", file, len(others), first)


def unquoted(line: str) -> str:
    """Returns a line of a list without the quotes that some file managers put around a copied path."""
    value = line.strip()
    return value[1:-1].strip() if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
