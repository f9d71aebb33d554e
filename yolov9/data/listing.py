"""Lists the pictures of a split and tells where the label file of a picture lies."""

import os
from collections.abc import Iterator
from pathlib import Path

from yolov9.data.split_paths import resolve_entry
from yolov9.errors import DataError

IMAGE_SUFFIXES = frozenset(
    ".avif .bmp .dng .gif .jp2 .jpeg .jpg .mpo .pfm .png .tif .tiff .webp".split()  # of the published list, and newer ones
)
"""Names that belong to the data set, in lower case; whether a file can be read is told by its content."""
FOREIGN_SUFFIXES = frozenset(".heic .heif .jxl .cr2 .nef .arw .psd .svg".split())
"""Pictures that people have in data sets and that no decoder here reads; they are listed as left out."""


def list_pictures(sources: tuple[Path, ...], root: Path) -> list[bytes]:
    """Lists the pictures in folders (with sub-folders) and list files.

    Hidden files and folders ("._x.jpg", ".ipynb_checkpoints") and files that are no pictures by name are no part of the
    data set.

    Args:
        sources: existing folders and list files.
        root: folder of the data set; list entries are looked for beside the list file, then here.

    Returns:
        Absolute paths as bytes (so that any file name works in any locale), sorted.
    """
    pictures: list[bytes] = []
    for source in sources:
        if source.is_dir():
            pictures.extend(_walk(os.fsencode(source), set()))
        else:
            pictures.extend(_read_list(source, root))
    return sorted(pictures)


def label_path_of(picture: bytes) -> bytes:
    """Returns the label file of a picture: the last "/images/" becomes "/labels/", the suffix becomes ".txt"."""
    head, found, tail = picture.rpartition(b"/images/")
    path = head + b"/labels/" + tail if found else picture
    return os.path.splitext(path)[0] + b".txt"


def _walk(folder: bytes, visited: set[tuple[int, int]]) -> Iterator[bytes]:
    status = os.stat(folder)
    if (status.st_dev, status.st_ino) in visited:
        return  # a link that leads back up
    visited.add((status.st_dev, status.st_ino))
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(b"."):
                continue
            if _is_picture(entry.name):
                if not entry.is_dir():
                    yield entry.path
            elif entry.is_dir():
                yield from _walk(entry.path, visited)


def _is_picture(name: bytes) -> bool:
    suffix = os.path.splitext(name)[1].decode("ascii", errors="replace").lower()
    return suffix in IMAGE_SUFFIXES or suffix in FOREIGN_SUFFIXES


def _read_list(file: Path, root: Path) -> Iterator[bytes]:
    try:
        lines = file.read_bytes().decode("utf-8-sig", errors="surrogateescape").splitlines()
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}", "a readable list of picture paths", f"chmod a+r {file}") from None
    for line in lines:
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        entry = resolve_entry(text, file.parent, root)
        path = os.fsencode(entry.found or entry.tried[0])
        if _is_picture(os.path.basename(path)):
            yield path
