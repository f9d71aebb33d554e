"""Decides which checkpoint files a run writes, and hands them to the writer."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from yolov9.engine.checkpoint import BEST, LAST, final_content
from yolov9.engine.checkpoint_writer import CheckpointWriter, WriteJob
from yolov9.engine.host_copy import all_finite
from yolov9.engine.session import Session
from yolov9.engine.training_state import capture
from yolov9.errors import ExitCode, UserError

SECONDS_PER_MINUTE = 60.0

Content = TypeVar("Content")


class RunSaver:
    """Writes last.pt, best.pt and the files of `--save-period`; does nothing on ranks other than the first.

    Args:
        session: the run.
        writer: writes one file after the other in the background.
    """

    def __init__(self, session: Session, writer: CheckpointWriter) -> None:
        self._session = session
        self._writer = writer
        self._saved_at = time.monotonic()

    def due(self) -> bool:
        """Tells whether it is time for a checkpoint inside the epoch."""
        settings = self._session.context.settings
        return not settings.nosave and time.monotonic() - self._saved_at >= settings.save_minutes * SECONDS_PER_MINUTE

    def save_last(self, *, final: bool = False) -> None:
        """Writes last.pt in the background.

        Args:
            final: the run ends here, so that `--nosave` does not count.

        Raises:
            UserError: a weight is not a finite number; nothing is written.
        """
        self._saved_at = time.monotonic()
        context = self._session.context
        if not context.ranks.is_first or (context.settings.nosave and not final):
            return
        if not final and self._session.step.faults().in_a_row:
            return  # The newest file is to hold the moment before: pictures of updates that were left out come again.
        content = self._with_room(partial(capture, self._session))
        self._writer.submit(WriteJob(context.weights_dir / LAST, content, keep_previous=True))

    def save_best(self, epoch: int) -> None:
        """Writes best.pt: weights for detection, half precision."""
        self._save_weights(BEST, epoch)

    def save_period(self, epoch: int) -> None:
        """Writes the weights of an epoch when `--save-period` asks for them."""
        period = self._session.context.settings.save_period
        if period > 0 and epoch > 0 and epoch % period == 0:
            self._save_weights(f"epoch{epoch}.pt", epoch)

    def finish(self) -> None:
        """Waits for all files.

        Raises:
            UserError: last.pt could not be written.
        """
        self._writer.wait()
        reason = self._writer.errors.get(self._session.context.weights_dir / LAST)
        if reason is not None:
            raise UserError(
                found=f"the last checkpoint could not be written: {reason}",
                needed=f"a writable {self._session.context.weights_dir} with free space; older checkpoints are there",
                remedy="free some space, then --resume",
                exit_code=ExitCode.OUTPUT_NOT_WRITABLE,
            )

    def _save_weights(self, name: str, epoch: int) -> None:
        context = self._session.context
        if not context.ranks.is_first or context.settings.nosave:
            return
        content = self._with_room(partial(self._weights, epoch))
        if content is not None:
            self._writer.submit(WriteJob(context.weights_dir / name, content))

    def _weights(self, epoch: int) -> dict[str, Any] | None:
        """Content of a file for detection; None when a weight is not a finite number."""
        average = self._session.average_state
        return final_content(self._session.facts, average, epoch) if all_finite(average) else None

    def _with_room(self, work: Callable[[], Content]) -> Content:
        return self._session.step.micro_batches.with_room(work, "a checkpoint")
