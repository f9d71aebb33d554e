"""Diagrams of a run: results, precision and recall curves, confusion matrix, labels of the data set.

matplotlib is imported when the first diagram is drawn. Figures are made without pyplot, so nothing depends on a display
or on the thread. Class names are never read as formulas.
"""

import csv
import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from yolov9.engine.draw import class_colour
from yolov9.engine.fonts import machine_fonts, readable_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

DPI = 150
MOST_LEGEND_CLASSES = 20
"""With more classes than this only the mean is named in the legend."""

MOST_NAMED_CLASSES = 90
"""With more classes than this the axes of the confusion matrix carry no names."""

MOST_NAMED_BARS = 30
"""With more classes than this their names would overlap under the bars."""

MOST_COUNTED_BARS = 12
"""With more classes than this the counts would touch over the bars."""

MOST_CELL_NUMBERS = 30
"""With more classes than this no numbers are written into the confusion matrix."""

MOST_OUTLINES = 500
"""Boxes of labels that are drawn around a common centre, spread over all of them."""

MOST_FONTS = 8
"""Font files that matplotlib is told about: it opens each of them."""

LEAST_PART = 0.005
"""Cells of the confusion matrix below this part of their column stay empty: their number would be 0.00."""

MOST_LYING_CHARACTERS = 60
"""Characters of size 8 that fit side by side under the bars; names that need more stand on end."""

SMOOTHING_PART = 0.1
"""Width of the running mean in `results.png`, as a part of the epochs."""

PALE, STRONG = "#8fb3d9", "#d1495b"
"""Colours of single epochs and of what is looked at first, in `results.png`."""

WIDE_RANGE = 100
"""A loss whose largest value is more than so many times its smallest one is drawn on a logarithmic scale: a model that
is hardly trained can have a huge validation loss, beside which the rest would be a flat line."""

RESULT_COLUMNS = (
    "train/box_loss",
    "train/cls_loss",
    "train/dfl_loss",
    "metrics/precision",
    "metrics/recall",
    "val/box_loss",
    "val/cls_loss",
    "val/dfl_loss",
    "metrics/mAP_0.5",
    "metrics/mAP_0.5:0.95",
)
"""Columns of results.csv in the order of the diagram, five to a row."""


def draw_results(csv_path: Path, picture: Path | None = None) -> Path:
    """Draws the columns of results.csv over the epochs.

    Args:
        csv_path: file with a header line; spaces around names and values are ignored.
        picture: file to write; default results.png next to the table.

    Returns:
        The file written.
    """
    columns = read_results(csv_path)
    picture = picture or csv_path.with_name("results.png")
    figure, axes = _figure(2, 5, 2.6, 2.4)
    for axis, name in zip(axes, RESULT_COLUMNS, strict=True):
        values = columns.get(name, np.zeros(0))
        # The table counts from 0, as the original does; people and the log count from 1.
        epochs = columns.get("epoch", np.arange(float(len(values))))[: len(values)] + 1
        _draw_course(axis, epochs, values, score=name.startswith("metrics/"))
        axis.set_title(name, fontsize=9)
    for axis in axes[5:]:
        axis.set_xlabel("epoch")
    if len(axes[0].lines) > 1:
        axes[0].legend(["each epoch", "running mean"], fontsize=8)
    return _save(figure, picture)


def _draw_course(axis: "Axes", epochs: NDArray[np.float64], values: NDArray[np.float64], *, score: bool) -> None:
    """Draws a column over the epochs, and its running mean where that differs; a score of 0 lies at the bottom."""
    from matplotlib.ticker import MaxNLocator

    mean = _running_mean(values)
    axis.plot(epochs, values, ".-", color=PALE if mean is not values else STRONG, linewidth=1, markersize=3)
    if mean is not values:
        axis.plot(epochs, mean, color=STRONG, linewidth=1.6)
    finite = values[np.isfinite(values)]
    if score:
        axis.set_ylim(bottom=-0.03 * axis.get_ylim()[1])
    elif len(finite) and 0 < finite.min() < finite.max() / WIDE_RANGE:
        axis.set_yscale("log")
    axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    axis.grid(alpha=0.3)


def read_results(csv_path: Path) -> dict[str, NDArray[np.float64]]:
    """Reads results.csv as one array per column; cells that are not numbers become NaN."""
    with csv_path.open(newline="", encoding="utf-8") as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
    if not rows:
        return {}
    header, body = rows[0], rows[1:]
    return {name: np.array([_number(row, column) for row in body]) for column, name in enumerate(header)}


def draw_curve(
    x: NDArray[np.floating],
    per_class: NDArray[np.floating],
    names: Sequence[str],
    picture: Path,
    *,
    x_label: str,
    y_label: str,
    notes: Sequence[str] | None = None,
    mean_note: str = "",
) -> Path:
    """Draws one curve per class and their mean.

    Args:
        x: (k,) values of the horizontal axis.
        per_class: (n, k) one row per class that has labels; n may be 0.
        names: n class names.
        picture: file to write.
        x_label: name of the horizontal axis.
        y_label: name of the vertical axis.
        notes: n short texts shown after the class names.
        mean_note: text shown after the name of the mean.
    """
    figure, (axis,) = _figure(1, 1, 9.0, 6.0)
    lines, texts = [], []
    for row, values in enumerate(per_class):
        (line,) = axis.plot(
            x, values, linewidth=1, color=_rgb(row) if len(per_class) <= MOST_LEGEND_CLASSES else "#bbb"
        )
        if len(per_class) <= MOST_LEGEND_CLASSES:
            lines.append(line)
            texts.append(f"{names[row]} {notes[row]}" if notes else names[row])
    mean = per_class.mean(0) if len(per_class) else np.zeros_like(x)
    lines += axis.plot(x, mean, linewidth=2.8, color="#1f3d7a")
    texts.append(f"all classes {mean_note}".strip())
    axis.set(xlabel=x_label, ylabel=y_label, xlim=(0, 1), ylim=(0, 1.01))
    axis.grid(alpha=0.3)
    _legend(axis, lines, texts)
    return _save(figure, picture)


def draw_confusion(matrix: NDArray[np.floating], names: Sequence[str], picture: Path) -> Path:
    """Draws a confusion matrix, each column as parts of its sum.

    Args:
        matrix: (nc + 1, nc + 1) counts, row predicted class, column true class, last row and column background.
        names: nc class names.
        picture: file to write.
    """
    parts = matrix / np.maximum(matrix.sum(0, keepdims=True), 1)
    count = len(names)
    side = float(np.clip(3 + 0.35 * count, 5, 14))
    figure, (axis,) = _figure(1, 1, side + 1.5, side, layout="compressed")
    image = axis.imshow(np.where(parts < LEAST_PART, np.nan, parts), cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=axis, fraction=0.046, pad=0.03, label="part of the column's objects")
    if count <= MOST_CELL_NUMBERS:
        for row, column in np.argwhere(parts >= LEAST_PART):
            colour = "white" if parts[row, column] > 0.5 else "black"
            axis.text(column, row, f"{parts[row, column]:.2f}", ha="center", va="center", fontsize=7, color=colour)
    if count <= MOST_NAMED_CLASSES:
        labels = [*_plain(names), "background"]
        _tick_names(axis, labels)
    axis.set(xlabel="true class", ylabel="predicted class", title="Confusion matrix")
    return _save(figure, picture)


def draw_labels(labels: NDArray[np.floating], names: Sequence[str], picture: Path) -> Path:
    """Draws what the labels of a data set look like: objects per class, boxes, centres, sizes.

    Args:
        labels: (m, 5) class, centre x, centre y, width, height, normalised to 0..1.
        names: class names.
        picture: file to write.
    """
    from matplotlib.colors import PowerNorm

    figure, (bars, boxes, centres, sizes) = _figure(2, 2, 4.6, 3.9)
    _draw_counts(bars, np.bincount(labels[:, 0].astype(int), minlength=len(names)), names)
    _draw_outlines(boxes, labels)
    unit = ((0, 1), (0, 1))
    for axis, (first, second), words in (
        (centres, (1, 2), ("centre x, part of the width", "centre y, part of the height", "centres of the boxes")),
        (sizes, (3, 4), ("width, part of the picture", "height, part of the picture", "sizes of the boxes")),
    ):
        # By the square root: one size that is everywhere does not hide all others.
        shades = PowerNorm(0.5, vmin=0)
        axis.hist2d(labels[:, first], labels[:, second], bins=50, range=unit, cmin=1, cmap="Blues", norm=shades)
        axis.set(xlabel=words[0], ylabel=words[1], title=words[2])
    centres.invert_yaxis()
    return _save(figure, picture)


def _draw_counts(axis: "Axes", counts: NDArray[np.int_], names: Sequence[str]) -> None:
    """Draws a bar for each class, with its count and name where there is room for them."""
    bars = axis.bar(range(len(counts)), counts, color=[_rgb(number) for number in range(len(counts))])
    axis.set(ylabel="objects", title="objects per class")
    if len(counts) <= MOST_COUNTED_BARS:
        axis.bar_label(bars, fontsize=8)
    if len(counts) > MOST_NAMED_BARS:
        axis.set_xlabel("class number")
        return
    shown = _plain(names)
    side_by_side = len(shown) * max(map(len, shown), default=0) <= MOST_LYING_CHARACTERS
    axis.set_xticks(range(len(shown)), shown, rotation=0 if side_by_side else 90, fontsize=8)
    _no_formulas(axis)


def _draw_outlines(axis: "Axes", labels: NDArray[np.floating]) -> None:
    """Draws boxes of the labels around a common centre."""
    from matplotlib.collections import PolyCollection

    some = labels[:: max(1, len(labels) // MOST_OUTLINES)]
    corners = 0.5 + some[:, None, 3:5] / 2 * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    colours = [_rgb(int(number)) for number in some[:, 0]]
    # All in one: hundreds of patches take longer than the rest of the picture.
    outlines = PolyCollection(list(corners), facecolors="none", edgecolors=colours, linewidths=0.5, alpha=0.25)
    axis.add_collection(outlines, autolim=False)
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", title="boxes around a common centre", xticks=[], yticks=[])


def _tick_names(axis: "Axes", labels: Sequence[str]) -> None:
    size = 8 if len(labels) <= MOST_CELL_NUMBERS else 6
    axis.set_xticks(range(len(labels)), labels, rotation=90, fontsize=size)
    axis.set_yticks(range(len(labels)), labels, fontsize=size)
    _no_formulas(axis)


def _no_formulas(axis: "Axes") -> None:
    for text in (*axis.get_xticklabels(), *axis.get_yticklabels()):
        text.set_parse_math(False)


def _legend(axis: "Axes", lines: Sequence["Line2D"], texts: Sequence[str]) -> None:
    """Adds a legend whose texts are set afterwards, because a leading underscore or a dollar sign has a meaning."""
    legend = axis.legend(
        lines, [str(number) for number in range(len(lines))], bbox_to_anchor=(1.02, 1), loc="upper left"
    )
    for entry, text in zip(legend.get_texts(), _plain(texts), strict=True):
        entry.set_parse_math(False)
        entry.set_text(text)


def _plain(names: Sequence[str]) -> list[str]:
    """Names with characters that no font shows replaced, so that matplotlib need not warn about each."""
    fonts = machine_fonts()
    return ["".join("□" if char in fonts.missing(name) else char for char in name) for name in readable_names(names)]


def _figure(
    rows: int, columns: int, width: float, height: float, layout: str = "constrained"
) -> tuple["Figure", list["Axes"]]:
    """Makes a figure of rows x columns axes, each width x height inches; "compressed" suits axes of a fixed shape."""
    new_figure = _matplotlib()
    figure = new_figure(figsize=(width * columns, height * rows), layout=layout)
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.ravel())


@lru_cache(maxsize=1)
def _matplotlib() -> Callable[..., "Figure"]:
    """Imports matplotlib quietly and tells it about fonts for other scripts; returns the Figure class."""
    # It logs about its cache folder and font list, which mean nothing to the user.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    import matplotlib
    from matplotlib import font_manager
    from matplotlib.figure import Figure

    families = ["DejaVu Sans"]
    for path in machine_fonts().paths[:MOST_FONTS]:
        font_manager.fontManager.addfont(str(path))
        families.append(font_manager.FontProperties(fname=str(path)).get_name())
    matplotlib.rcParams["font.family"] = list(dict.fromkeys(families))
    return Figure


def _save(figure: "Figure", picture: Path) -> Path:
    figure.savefig(picture, dpi=DPI)
    return picture


def _rgb(number: int) -> tuple[float, float, float]:
    blue, green, red = class_colour(number)
    return red / 255, green / 255, blue / 255


def _number(row: list[str], column: int) -> float:
    try:
        return float(row[column])
    except (ValueError, IndexError):
        return float("nan")


def _running_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    width = max(1, round(len(values) * SMOOTHING_PART)) | 1
    if width == 1:
        return values
    padded = np.pad(values, width // 2, mode="edge")
    return np.convolve(padded, np.ones(width) / width, mode="valid")
