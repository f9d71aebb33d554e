"""Rules for YOLO label files: one object per row, "class cx cy w h" or "class x1 y1 x2 y2 x3 y3 …", normalised to 0 … 1.

Every row is judged by itself. Damaged rows (not finite, not normalised, class not a whole number, an odd polygon) are left
out; a file that is not in the format (words, commas, rows of the wrong length), or in which most rows are damaged, is
refused as a whole, because the picture would then teach that its objects are background.
"""

import codecs
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

ROUNDING = 1e-4
"""Coordinates this far outside 0 … 1 are rounding errors (labels have 4 or more decimals) and are clipped."""

BOX_COLUMNS = 5
SHORTEST_POLYGON = 7
"""Columns of a row with a class and three points."""

Floats = NDArray[np.float32]


@dataclass
class RowProblem:
    """Something odd in a label file; equal reasons of one file are merged."""

    reason: str
    """What is wrong, in words that can be counted over files."""
    action: str
    """"repaired", "row left out" or "picture left out"."""
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
    refused: bool = False
    """The file cannot be trusted; its picture is to be left out. `labels` is empty then."""


class _RowError(Exception):
    """A row that cannot be used."""

    def __init__(self, reason: str, *, whole_file: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.whole_file = whole_file


def parse_labels(data: bytes) -> ParsedLabels:
    """Parses the bytes of a label file.

    Args:
        data: content; line ends, tabs, blank lines, comment lines (#) and a byte-order mark do not matter.

    Returns:
        Labels in the order of the rows; when exact duplicates had to be removed, sorted by value.
    """
    rows: list[Floats] = []
    segments: list[Floats] = []
    problems: dict[str, RowProblem] = {}
    good = bad = 0
    refused = False
    for number, line in enumerate(_decode(data).splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            row, segment, repaired = _parse_row(text)
        except _RowError as error:
            bad += 1
            refused = refused or error.whole_file
            _note(problems, error.reason, "row left out", number, text)
            continue
        good += 1
        if repaired and min(row[3], row[4]) < ROUNDING:
            _note(problems, "nothing of the box is left after clipping", "row left out", number, text)
            continue
        if repaired:
            _note(problems, "coordinate outside 0 … 1 by rounding", "repaired", number, text)
        rows.append(row)
        segments.append(segment)
    if refused or bad > good:
        for problem in problems.values():
            problem.action = "picture left out"
        return ParsedLabels(np.zeros((0, BOX_COLUMNS), np.float32), [], list(problems.values()), refused=True)
    labels = np.array(rows, np.float32).reshape(-1, BOX_COLUMNS)
    labels, segments = _without_duplicates(labels, segments, problems)
    return ParsedLabels(labels, segments, list(problems.values()))


def polygon_to_box(points: Floats) -> Floats:
    """Returns centre x, centre y, width, height of the box around (k, 2) points, in float32 arithmetic."""
    low, high = points.min(axis=0), points.max(axis=0)
    return np.concatenate([(low + high) / 2, high - low]).astype(np.float32)


def _parse_row(text: str) -> tuple[Floats, Floats, bool]:
    """Returns one row as (5,) label and (k, 2) polygon, and whether it had to be clipped."""
    columns = text.split()
    if "," in text or ";" in text:
        raise _RowError("commas between or in the numbers", whole_file=True)
    try:
        values = np.array([_number(column) for column in columns], np.float32)
    except ValueError:
        raise _RowError("a word in place of a number", whole_file=True) from None
    if len(values) < BOX_COLUMNS or len(values) == BOX_COLUMNS + 1:
        hint = " (a confidence at the end?)" if len(values) > BOX_COLUMNS else ""
        raise _RowError(f"{len(values)} numbers in a row{hint}", whole_file=True)
    if len(values) % 2 == 0:
        raise _RowError("odd number of polygon coordinates")
    if not np.isfinite(values).all():
        raise _RowError("not a finite number")
    if values[0] < 0 or values[0] != np.floor(values[0]):
        raise _RowError("class is not a whole number from 0 on")
    coordinates = values[1:]
    low, high = coordinates.min(), coordinates.max()
    if low < -ROUNDING or high > 1 + ROUNDING:
        raise _RowError("not normalised: coordinate outside 0 … 1")
    repaired = bool(low < 0 or high > 1)
    if repaired:
        values[1:] = coordinates.clip(0, 1)
    if len(values) == BOX_COLUMNS:
        return values, np.zeros((0, 2), np.float32), repaired
    points = values[1:].reshape(-1, 2)
    return np.concatenate([values[:1], polygon_to_box(points)]), points, repaired


def _number(column: str) -> float:
    if "_" in column:  # Python reads 1_0 as 10
        raise ValueError
    return float(column)


def _decode(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", errors="replace")


def _note(problems: dict[str, RowProblem], reason: str, action: str, line: int, text: str) -> None:
    if reason in problems:
        problems[reason].rows += 1
    else:
        problems[reason] = RowProblem(reason, action, line, text if len(text) <= 60 else text[:57] + "...")


def _without_duplicates(
    labels: Floats, segments: list[Floats], problems: dict[str, RowProblem]
) -> tuple[Floats, list[Floats]]:
    if len(labels) < 2:
        return labels, segments
    unique, first = np.unique(labels, axis=0, return_index=True)
    extra = len(labels) - len(unique)
    if not extra:
        return labels, segments
    again = next(row for row in range(len(labels)) if row not in set(first.tolist()))
    text = " ".join(f"{value:g}" for value in labels[again])
    problems["repeated rows"] = RowProblem("repeated rows", "repaired", again + 1, text, extra)
    return unique, [segments[row] for row in first.tolist()]
