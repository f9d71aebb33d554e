"""Which files a data set consists of, and where each of them lies in a copy."""

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from entrypoint.staging.facts import footprint
from yolov9.config.environment import Environment
from yolov9.data import DatasetConfig, load_dataset_config
from yolov9.data.listing import label_path_of, list_pictures
from yolov9.read_watch import reading

FORMAT = "yolov9-stage-1"
SPLITS = ("train", "val")
"""What a training reads."""
FILES_DIR = "files"
"""Folder of a copy that holds each file under its absolute path."""
DATA_FILE = "data.yaml"
STAT_THREADS = 16
"""A network mount answers many questions at a time as fast as one."""
LOOKED_AT_TOGETHER = 256
"""Files that a thread is given at a time."""


class StageError(Exception):
    """The data set cannot be copied; the original is used."""


@dataclass(frozen=True)
class FileEntry:
    """One file of the data set and what tells its version apart."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int


@dataclass(frozen=True)
class DataFiles:
    """The files that the splits in use consist of."""

    config: DatasetConfig
    pictures: dict[str, list[str]]
    """Split -> pictures as the index lists them, missing ones included."""
    entries: tuple[FileEntry, ...]
    """Pictures and label files that exist, each once."""

    @property
    def size_bytes(self) -> int:
        """Content of all files."""
        return sum(entry.size for entry in self.entries)

    @property
    def footprint_bytes(self) -> int:
        """What a copy takes."""
        return sum(footprint(entry.size) for entry in self.entries)

    @cached_property
    def key(self) -> str:
        """Name of a copy of exactly this version: any changed file, class name or list gives another one."""
        digest = hashlib.blake2b(digest_size=16)
        sources = [[os.fspath(path) for path in self.config.sources(split)] for split in SPLITS]
        head = [FORMAT, self.config.names, sources, [self.pictures[split] for split in SPLITS]]
        digest.update(json.dumps(head).encode())
        for entry in self.entries:
            digest.update(json.dumps([entry.path, entry.size, entry.mtime_ns, entry.ctime_ns]).encode())
        return digest.hexdigest()


def find_files(data: str, environment: Environment) -> DataFiles:
    """Lists and looks at all files of a data set's training and validation splits.

    Raises:
        StageError: a file name that a YAML or list file cannot hold, or something that is no ordinary file.
        DataError: the data set file cannot be used.
    """
    config = load_dataset_config(data, environment=environment)
    pictures = {split: list_pictures(config.sources(split), config.root) for split in SPLITS}
    wanted = sorted({path for paths in pictures.values() for path in paths})
    labels = sorted({label_path_of(path) for path in wanted} - set(wanted))
    with ThreadPoolExecutor(STAT_THREADS) as pool:
        paths = [*wanted, *labels]
        # Not one by one: handing a path to a thread takes longer than looking at its file.
        parts = [paths[start : start + LOOKED_AT_TOGETHER] for start in range(0, len(paths), LOOKED_AT_TOGETHER)]
        entries = [entry for part in pool.map(_look_at, parts) for entry in part]
    return DataFiles(config, pictures, tuple(entries))


def _look_at(paths: Sequence[str]) -> list[FileEntry]:
    return [entry for entry in map(_look, paths) if entry is not None]


def _look(path: str) -> FileEntry | None:
    try:
        with reading(path):
            status = os.stat(path)  # noqa: PTH116 -- the same as Path.stat, for a hundred thousand paths
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StageError(f"{path}: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise StageError(f"{path} is not an ordinary file")
    return FileEntry(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def place_in(folder: Path, path: str | Path) -> Path:
    """Returns where a file of the data set lies in a copy."""
    return folder / FILES_DIR / os.fspath(path).lstrip("/")


def write_data_file(files: DataFiles, folder: Path) -> Path:
    """Writes the data.yaml of a copy, and its list files, and returns the path of the first.

    Raises:
        StageError: the copy would not read as the original does.
    """
    content: dict[str, object] = {"names": list(files.config.names)}
    for split in SPLITS:
        content[split] = [
            str(_staged_source(files, folder, split, number, source))
            for number, source in enumerate(files.config.sources(split))
        ]
    file = folder / DATA_FILE
    try:
        file.write_text(yaml.safe_dump(content, allow_unicode=True, sort_keys=False), encoding="utf-8")
    except UnicodeEncodeError:
        raise StageError("a folder name is not UTF-8 text") from None
    _compare(files, folder, file)
    return file


def _staged_source(files: DataFiles, folder: Path, split: str, number: int, source: Path) -> Path:
    """A folder stays a folder; a list file is written anew with the paths of the copy."""
    if source.is_dir():
        place = place_in(folder, source)
        place.mkdir(parents=True, exist_ok=True)
        return place
    place = folder / f"{split}-{number}.txt"
    listed = list_pictures((source,), files.config.root)
    place.write_bytes(os.fsencode(_lines(place_in(folder, path) for path in listed)))
    return place


def _lines(paths: Iterable[Path]) -> str:
    return "".join(f"{path}\n" for path in paths)


def _compare(files: DataFiles, folder: Path, file: Path) -> None:
    """Reads the copy as the trainer will; odd file names must not lead to another list of pictures."""
    staged = load_dataset_config(str(file))
    same = staged.names == files.config.names
    for split in SPLITS:
        listed = list_pictures(staged.sources(split), staged.root)
        same = same and listed == [str(place_in(folder, path)) for path in files.pictures[split]]
    if not same:
        raise StageError("a copy would not list the same pictures (unusual characters in file names)")
