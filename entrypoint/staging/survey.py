"""Measures a data set and the places where a copy could lie."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from entrypoint.host import FolderFacts, HostFacts
from entrypoint.host.shm import SHM_DIR
from entrypoint.host.storage import FAST_MEDIA, SLOW_MEDIA, read_folder
from entrypoint.host.tree import Tree, open_tree
from entrypoint.request import JobRequest
from entrypoint.staging.facts import StageSurvey, StageTarget
from entrypoint.staging.files import DataFiles, FileEntry, StageError, find_files
from entrypoint.staging.share import is_complete, stage_root, sweep
from yolov9.config.settings import TrainSettings
from yolov9.data import load_dataset_config
from yolov9.read_watch import reading

SAMPLE_FILES = 24
SAMPLE_S = 0.5
"""A short look at the speed: so many files, at most so long."""
IMAGES_PART = "/images/"
"""The label of a picture is found by this part of its path; a copy must not add one."""


def survey_staging(request: JobRequest, facts: HostFacts, *, clean: bool) -> StageSurvey | None:
    """Returns what a decision about a copy needs; None when there is nothing to decide.

    Args:
        request: with a data set of the user's.
        facts: the machine.
        clean: remove copies that killed jobs left behind, so that their space counts as free.

    Raises:
        DataError: the data set file cannot be used.
    """
    settings, tree = request.settings, open_tree(request.report.root)
    if not isinstance(settings, TrainSettings) or not settings.data or settings.stage == "off":
        return None
    config = load_dataset_config(settings.data, environment=request.environment)
    folders = dict.fromkeys(str(path) for split in ("train", "val") for path in config.sources(split))
    sources = tuple(read_folder(tree, folder) for folder in folders)
    automatic = settings.stage == "auto"
    if automatic and all(source.medium in FAST_MEDIA for source in sources):
        return StageSurvey(sources=sources)
    try:
        files = find_files(settings.data, request.environment)
    except StageError as error:
        return StageSurvey(sources=sources, problem=str(error))
    speed = None
    if automatic and not any(source.medium in SLOW_MEDIA for source in sources):
        speed = read_speed(files.entries)
    places = _automatic_places(request) if automatic else [Path(settings.stage).expanduser().absolute()]
    return StageSurvey(
        sources=sources,
        files=len(files.entries),
        size_bytes=files.size_bytes,
        footprint_bytes=files.footprint_bytes,
        read_bytes_s=speed,
        targets=tuple(_target(tree, facts, place, sources, files, clean=clean) for place in places),
    )


def read_speed(entries: Sequence[FileEntry]) -> float | None:
    """Reads a few files spread over the data set, not from the kernel's memory, and returns bytes per second."""
    total, begun = 0, time.perf_counter()
    for entry in entries[:: max(1, len(entries) // SAMPLE_FILES)][:SAMPLE_FILES]:
        try:
            with reading(entry.path), open(entry.path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                total += len(file.read())
        except OSError:
            continue  # The scan will name it.
        if time.perf_counter() - begun > SAMPLE_S:
            break
    return total / (time.perf_counter() - begun) if total else None


def _automatic_places(request: JobRequest) -> Iterator[Path]:
    environment = request.environment
    yield Path(SHM_DIR)
    yield environment.temporary_dir
    if environment.cache_dir is not None:
        yield environment.cache_dir


def _target(
    tree: Tree, facts: HostFacts, place: Path, sources: Sequence[FolderFacts], files: DataFiles, *, clean: bool
) -> StageTarget:
    root = stage_root(place, os.getuid())
    if clean and tree.is_this_machine:
        sweep(root, keep=files.key)
    folder = read_folder(tree, place)
    free = facts.shm.free_bytes if str(place) == SHM_DIR and not tree.is_this_machine else folder.free_bytes
    return StageTarget(
        folder=folder,
        free_bytes=free,
        free_files=_free_files(tree, folder.existing),
        holds_copy=tree.is_this_machine and is_complete(root / files.key, files),
        problem=_problem(place, sources, root, files.config.path.parent),
    )


def _problem(place: Path, sources: Sequence[FolderFacts], root: Path, data_dir: Path) -> str:
    if IMAGES_PART in f"{root}/":
        return f"a path with {IMAGES_PART!r} in it would hide the labels"
    paths = [Path(source.path).resolve() for source in sources]
    folders = [path if path.is_dir() else path.parent for path in paths]
    if any(folder.is_relative_to(data_dir.resolve()) for folder in folders):
        folders.append(data_dir.resolve())
    if any(place.resolve().is_relative_to(folder) for folder in folders):
        return f"{place} is a part of the data set, where nothing is written"
    return ""


def _free_files(tree: Tree, existing: str) -> int | None:
    if not tree.is_this_machine:
        return None
    try:
        space = os.statvfs(existing)
    except OSError:
        return None
    return space.f_favail if space.f_files else None
