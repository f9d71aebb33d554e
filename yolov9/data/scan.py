"""Checks every picture of a split and reads its labels, in parallel within the CPU limit."""

import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from yolov9.data.image_check import check_image
from yolov9.data.images import ImageError
from yolov9.data.labels import Floats, RowProblem, read_labels
from yolov9.data.listing import label_path_of
from yolov9.data.summary import Problem
from yolov9.logs import LOG
from yolov9.read_watch import reading

CHUNK = 250
"""Pictures that one task looks at."""
PROGRESS_EVERY_S = 10.0
"""Seconds between progress lines of a long scan."""

NO_FILE = (-1, -1, -1)
"""Stamp of a file that is not there, or whose folder may not be entered."""
_PICTURE_LEFT_OUT = "picture left out"


@dataclass(frozen=True)
class ImageFacts:
    """What the check of a picture found; kept in the scan cache."""

    stamp: tuple[int, int, int]
    """Size in bytes, time of change in ns, time of status change in ns (which an edit cannot set back)."""
    width: int
    """Upright width in pixels; 0 for a picture that cannot be used."""
    height: int
    """Upright height in pixels."""
    note: str = ""
    """Why it cannot be used (width 0), or what is odd about it."""


@dataclass(frozen=True)
class ScannedPicture:
    """One picture with its labels."""

    path: str
    """Absolute path."""
    facts: ImageFacts
    """Size and state of the picture."""
    labels: Floats
    """(n, 5) class, centre x, centre y, width, height."""
    segments: list[Floats]
    """Per label its polygon, (0, 2) for a box."""
    label_file: bool
    """There is a label file."""
    refused: str
    """Why the picture is left out; "" when it is used."""
    problems: tuple[Problem, ...]
    """What is odd about the picture and its labels."""


_NO_LABELS = np.zeros((0, 5), np.float32)


def scan_pictures(
    paths: list[str], known: dict[str, ImageFacts], workers: int, key_point_columns: int = 0
) -> Iterator[ScannedPicture]:
    """Scans pictures in the given order.

    Args:
        paths: absolute paths.
        known: facts of an earlier scan; used for a picture when its stamp is still the same.
        workers: threads; the caller passes what the CPU limit allows.
        key_point_columns: numbers after each box that give its key points.
    """

    def scan(chunk: list[str]) -> list[ScannedPicture]:
        return [scan_picture(path, known.get(path), key_point_columns) for path in chunk]

    chunks = [paths[start : start + CHUNK] for start in range(0, len(paths), CHUNK)]
    started = told = time.monotonic()
    done = 0
    with ThreadPoolExecutor(max(1, workers), thread_name_prefix="scan") as pool:
        for pictures in pool.map(scan, chunks):
            done += len(pictures)
            now = time.monotonic()
            if now - told > PROGRESS_EVERY_S:
                told = now
                LOG.info("scanned %d of %d pictures in %.0f s", done, len(paths), now - started)
            yield from pictures


def scan_picture(path: str, known: ImageFacts | None, key_point_columns: int = 0) -> ScannedPicture:
    """Checks one picture and parses its label file (labels are read afresh each time, so they are never stale)."""
    with reading(path):
        facts = _image_facts(path, known)
    if not facts.width:
        problem = Problem(path, facts.note, _PICTURE_LEFT_OUT)
        return ScannedPicture(path, facts, _NO_LABELS, [], False, facts.note, (problem,))
    problems = [Problem(path, facts.note, "used")] if facts.note else []
    label_path = label_path_of(path)
    try:
        with reading(label_path):
            parsed = read_labels(label_path, key_point_columns)
    except FileNotFoundError:
        return ScannedPicture(path, facts, _NO_LABELS, [], False, "", tuple(problems))
    except OSError as error:
        reason = f"label file cannot be read ({error.strerror})"
        problems.append(Problem(label_path, reason, _PICTURE_LEFT_OUT))
        return ScannedPicture(path, facts, _NO_LABELS, [], True, reason, tuple(problems))
    problems += _label_problems(label_path, parsed.problems)
    return ScannedPicture(path, facts, parsed.labels, parsed.segments, True, parsed.refused, tuple(problems))


def _label_problems(path: str, rows: list[RowProblem]) -> list[Problem]:
    return [Problem(path, row.reason, row.action, row.line, row.text, row.rows) for row in rows]


def _image_facts(path: str, known: ImageFacts | None) -> ImageFacts:
    try:
        status = Path(path).stat()
    except OSError as error:
        return ImageFacts(NO_FILE, 0, 0, error.strerror or "cannot be read")
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for somebody to write to it
        return ImageFacts(NO_FILE, 0, 0, "not a file")
    stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    if known is not None and known.stamp == stamp:
        return known
    try:
        checked = check_image(path)
    except ImageError as error:
        return ImageFacts(stamp, 0, 0, error.reason)
    return ImageFacts(stamp, checked.width, checked.height, checked.note)
