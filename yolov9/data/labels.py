"""Rules for YOLO label files: an object per row, "class cx cy w h" or "class x1 y1 x2 y2 x3 y3 …", normalised to 0 … 1.

Every row is judged by itself. Damaged rows (not finite, not normalised, class not a whole number, an odd polygon) are
left out; a file that is not in the format (words, commas, rows of the wrong length), or in which most rows are damaged,
is refused as a whole, because its picture would then teach that its objects are background.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from yolov9.decode_text import decode_text

ROUNDING = 1e-4
"""Coordinates this far outside 0 … 1 are rounding errors (labels have 4 or more decimals) and are clipped."""

BOX_COLUMNS = 5
"""Columns of a row that gives a box; a polygon has 7, 9, …: class and three or more points."""

HIGHEST_CLASS = 2**24
"""Labels are float32, which holds no larger whole numbers exactly."""

Floats = NDArray[np.float32]
_ONE = 1 + 2.0**-24  # as float32 this still is 1
_NO_POLYGON = np.zeros((0, 2), np.float32)
_SHOWN_TEXT = 60


@dataclass
class RowProblem:
    """Something odd in a label file; equal reasons of one file are merged."""

    reason: str
    """What is wrong, in words that can be counted over files."""
    action: str
    """"repaired", "row left out", "picture left out", or that it is kept."""
    line: int
    """Line number, from 1, of the first row with this problem."""
    text: str
    """That row as it stands in the file, shortened."""
    rows: int = 1
    """Rows of the file with this problem."""


@dataclass
class ParsedLabels:
    """Content of one label file."""

    labels: Floats
    """(n, 5) class, centre x, centre y, width, height; coordinates 0 … 1."""
    segments: list[Floats]
    """Per label its polygon, (k, 2) normalised points; (0, 2) for a label that was given as a box."""
    problems: list[RowProblem] = field(default_factory=list)
    """What is odd, in the order of the lines."""
    refused: str = ""
    """Why the whole file cannot be trusted and its picture is to be left out (`labels` is empty then), else ""."""


class _RowError(Exception):
    """A row that cannot be used."""

    def __init__(self, reason: str, *, whole_file: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.whole_file = whole_file


def read_labels(path: str | Path, key_point_columns: int = 0) -> ParsedLabels:
    """Reads a label file; see `parse_labels`.

    Raises:
        OSError: it cannot be read; FileNotFoundError when it is not there, which means a picture without objects.
    """
    return parse_labels(Path(path).read_bytes(), key_point_columns)


def parse_labels(data: bytes, key_point_columns: int = 0) -> ParsedLabels:
    """Parses the bytes of a label file.

    Args:
        data: content; line ends, tabs, blank lines, comment lines (#) and a byte-order mark do not matter.
        key_point_columns: numbers after a box that give its key points; a row with so many more is a box.

    Returns:
        Labels in the order of the rows; when exact duplicates had to be removed, sorted by value.
    """
    rows: list[list[float]] = []
    lines: list[tuple[int, str]] = []
    problems: dict[str, RowProblem] = {}
    bad = 0
    refused = ""
    for number, line in enumerate(decode_text(data, "replace").splitlines(), 1):
        text = line.strip()
        if not text or text[0] == "#":
            continue
        try:
            row, clipped = _parse_row(text, key_point_columns)
        except _RowError as error:
            bad += 1
            _note(problems, error.reason, "row left out", number, text)
            if error.whole_file:
                refused = refused or error.reason
            continue
        if clipped:
            _note(problems, "coordinate outside 0 … 1 by rounding", "repaired", number, text)
        rows.append(row)
        lines.append((number, text))
    if not refused and bad > len(rows):
        refused = next(iter(problems))
    if refused:
        for problem in problems.values():
            problem.action = "picture left out"
        return ParsedLabels(np.zeros((0, BOX_COLUMNS), np.float32), [], list(problems.values()), refused)
    labels, segments = _to_arrays(rows)
    if problems:
        labels, segments = _without_slivers(labels, segments, lines, problems)
    _note_flat_boxes(labels, lines, problems)
    labels, segments = _without_duplicates(labels, segments, lines, problems)
    return ParsedLabels(labels, segments, list(problems.values()))


def polygon_to_box(points: Floats) -> Floats:
    """Returns centre x, centre y, width, height of the box around (k, 2) points, in float32 arithmetic."""
    low, high = points.min(axis=0), points.max(axis=0)
    return np.concatenate([(low + high) / 2, high - low]).astype(np.float32)


def _parse_row(text: str, key_point_columns: int) -> tuple[list[float], bool]:
    """Returns the numbers of one row, and whether a coordinate had to be clipped."""
    try:
        values = [float(column) for column in text.split()]
    except ValueError:
        commas = "," in text or ";" in text
        reason = "commas between or in the numbers" if commas else "a word in place of a number"
        raise _RowError(reason, whole_file=True) from None
    if "_" in text:  # Python reads 1_0 as 10
        raise _RowError("a word in place of a number", whole_file=True)
    if key_point_columns and len(values) == BOX_COLUMNS + key_point_columns:
        del values[BOX_COLUMNS:]
    count = len(values)
    if count < BOX_COLUMNS or count == BOX_COLUMNS + 1:
        hint = " (a confidence at the end?)" if count > BOX_COLUMNS else ""
        raise _RowError(f"{count} numbers in a row{hint}", whole_file=True)
    if count % 2 == 0:
        raise _RowError("odd number of polygon coordinates")
    if not all(map(math.isfinite, values)):
        raise _RowError("not a finite number")
    if not 0 <= values[0] <= HIGHEST_CLASS or not values[0].is_integer():
        raise _RowError("class is not a whole number from 0 on")
    low, high = min(values[1:]), max(values[1:])
    if low >= 0 and high <= _ONE:
        return values, False
    if low < -ROUNDING or high > 1 + ROUNDING:
        raise _RowError("not normalised: coordinate outside 0 … 1")
    return [values[0], *(min(max(value, 0.0), 1.0) for value in values[1:])], True


def _to_arrays(rows: list[list[float]]) -> tuple[Floats, list[Floats]]:
    if all(len(row) == BOX_COLUMNS for row in rows):  # the usual case, in one step
        return np.array(rows, np.float32).reshape(-1, BOX_COLUMNS), [_NO_POLYGON] * len(rows)
    labels = np.empty((len(rows), BOX_COLUMNS), np.float32)
    segments = [_NO_POLYGON] * len(rows)
    for place, row in enumerate(rows):
        if len(row) == BOX_COLUMNS:
            labels[place] = row
            continue
        segments[place] = np.array(row[1:], np.float32).reshape(-1, 2)
        labels[place, 0] = row[0]
        labels[place, 1:] = polygon_to_box(segments[place])
    return labels, segments


def _note(problems: dict[str, RowProblem], reason: str, action: str, line: int, text: str) -> None:
    if reason in problems:
        problems[reason].rows += 1
    else:
        shown = text if len(text) <= _SHOWN_TEXT else text[: _SHOWN_TEXT - 3] + "..."
        problems[reason] = RowProblem(reason, action, line, shown)


def _without_slivers(
    labels: Floats, segments: list[Floats], lines: list[tuple[int, str]], problems: dict[str, RowProblem]
) -> tuple[Floats, list[Floats]]:
    """Drops boxes at the border that are thinner than a rounding error: what clipping leaves of a box outside."""
    centres, sizes = labels[:, 1:3], labels[:, 3:5]
    sliver = ((sizes < ROUNDING) & ((centres <= 0) | (centres >= 1))).any(axis=1)
    for place in np.flatnonzero(sliver).tolist():
        _note(problems, "nothing of the box is left after clipping", "row left out", *lines[place])
    keep = np.flatnonzero(~sliver).tolist()
    lines[:] = [lines[place] for place in keep]
    return labels[keep], [segments[place] for place in keep]


def _note_flat_boxes(labels: Floats, lines: list[tuple[int, str]], problems: dict[str, RowProblem]) -> None:
    for place in np.flatnonzero((labels[:, 3:5] <= 0).any(axis=1)).tolist():
        _note(problems, "box without width or height", "kept; in validation it counts as missed", *lines[place])


def _without_duplicates(
    labels: Floats, segments: list[Floats], lines: list[tuple[int, str]], problems: dict[str, RowProblem]
) -> tuple[Floats, list[Floats]]:
    if len(labels) < 2:
        return labels, segments
    data, width = labels.tobytes(), labels.itemsize * BOX_COLUMNS
    if len({data[start : start + width] for start in range(0, len(data), width)}) == len(labels):
        return labels, segments  # the usual case, without sorting
    unique, first = np.unique(labels, axis=0, return_index=True)
    kept = first.tolist()
    for place in sorted(set(range(len(labels))) - set(kept)):
        _note(problems, "repeated rows", "repaired", *lines[place])
    return unique, [segments[place] for place in kept]
