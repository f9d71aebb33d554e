"""What a run tells: log lines, results.csv and TensorBoard."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from yolov9.engine.atomic_file import write_text_atomically
from yolov9.engine.event_file import EventFile
from yolov9.engine.optional_file import optional_file
from yolov9.logs import LOG

COLUMNS = (
    "epoch",
    "train/box_loss",
    "train/cls_loss",
    "train/dfl_loss",
    "metrics/precision",
    "metrics/recall",
    "metrics/mAP_0.5",
    "metrics/mAP_0.5:0.95",
    "val/box_loss",
    "val/cls_loss",
    "val/dfl_loss",
    "x/lr0",
    "x/lr1",
    "x/lr2",
)
"""Columns of results.csv as YOLOv9 users know them; lr0, lr1, lr2 are those of biases, weights and norm weights."""
RESULTS_FILE = "results.csv"
PROGRESS_INTERVAL_S = 30.0
"""Time between two lines inside a long epoch."""


class ResultsFile:
    """results.csv: one row an epoch, every epoch once.

    Args:
        path: the file; it is written anew each time.
        rows: rows so far, which a checkpoint remembers; new ones are added to this list.
    """

    def __init__(self, path: Path, rows: list[list[str]]) -> None:
        self._path = path
        self._rows = rows
        self._complete = False

    def add(self, epoch: int, values: Mapping[str, float]) -> None:
        """Adds the row of an epoch; a value that was not measured stays empty."""
        cells = [f"{values[name]:.5g}" if name in values else "" for name in COLUMNS[1:]]
        self._rows.append([str(epoch), *cells])
        self._write()

    def complete(self) -> None:
        """Tries again when the last row could not be written."""
        if not self._complete:
            self._write()

    def _write(self) -> None:
        lines = [",".join(row) for row in [list(COLUMNS), *self._rows]]
        try:
            # Every checkpoint holds the rows, too: waiting for a disk that is taking a checkpoint could take longer
            # than an epoch.
            write_text_atomically(self._path, "\n".join(lines) + "\n", durable=False)
            self._complete = True
        except OSError as error:
            self._complete = False
            LOG.error(
                "%s could not be written: %s; its rows are kept and written with the next epoch", self._path, error
            )


class Board:
    """TensorBoard scalars; without the tensorboard package, or when its file cannot be made, it does nothing.

    Args:
        folder: run folder.
        first_epoch: points of this epoch and later ones, left from before a resume, are hidden.
    """

    def __init__(self, folder: Path, first_epoch: int = 0) -> None:
        self._file: EventFile | None = None
        try:
            self._file = EventFile(folder, first_epoch)
        except ImportError:
            LOG.info("tensorboard is not installed: no event file is written")
        except OSError as error:
            LOG.error("no TensorBoard file: %s", error)

    def add(self, epoch: int, values: Mapping[str, float]) -> None:
        """Adds one point to each curve."""
        if self._file is None:
            return
        try:
            self._file.add(epoch, values)
        except OSError as error:
            LOG.error("TensorBoard file could not be written: %s; its points are written with the next epoch", error)

    def close(self) -> None:
        """Ends the file."""
        if self._file is not None:
            with optional_file("the end of the TensorBoard file"):
                self._file.close()


class ProgressLines:
    """A line every `PROGRESS_INTERVAL_S` inside an epoch; never a bar, so that log files stay readable.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()

    def due(self) -> bool:
        """Tells whether it is time for a line; the next one is due an interval later."""
        now = self._clock()
        if now - self._last < PROGRESS_INTERVAL_S:
            return False
        self._last = now
        return True

    def restart(self) -> None:
        """Starts the interval again, at the start of an epoch."""
        self._last = self._clock()


def epoch_values(
    losses: Sequence[float], scores: Sequence[float], val_losses: Sequence[float], rates: Sequence[float]
) -> dict[str, float]:
    """Returns the values of one row by column name.

    Args:
        losses: mean box, class and distribution loss of training.
        scores: precision, recall, mAP at IoU 0.5, mAP at 0.5 to 0.95; empty when the epoch was not validated.
        val_losses: the three losses of validation; empty likewise.
        rates: learning rates of the three groups at the end of the epoch.
    """
    groups = (COLUMNS[1:4], losses), (COLUMNS[4:8], scores), (COLUMNS[8:11], val_losses), (COLUMNS[11:14], rates)
    return {name: value for names, values in groups for name, value in zip(names, values, strict=False)}
