"""A request to stop: the first signal asks for the step to be finished and saved, the second one leaves at once."""

import os
import signal
from types import FrameType, TracebackType

from yolov9.errors import ExitCode
from yolov9.logs import LOG

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StoppedAtOnce(BaseException):
    """A stop was asked for before there was anything to save. No error, so nothing that catches errors takes it."""


class StopRequest:
    """Takes SIGTERM and SIGINT while it is open as a context; the former handlers come back afterwards."""

    def __init__(self) -> None:
        self.requested = False
        self.at_once = False
        """Nothing has to be finished: the signal raises StoppedAtOnce wherever the program is."""
        self._former: dict[signal.Signals, object] = {}

    def __enter__(self) -> "StopRequest":
        for number in SIGNALS:
            self._former[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal itself returned

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            # Nothing is cleaned up on purpose: the newest complete checkpoint is on the disk already.
            os._exit(ExitCode.STOPPED_RESUMABLE)
        self.requested = True
        if self.at_once:
            raise StoppedAtOnce
        LOG.warning(
            "%s: finishing this step and saving; the same signal again leaves at once", signal.Signals(number).name
        )


def ignore_stops() -> None:
    """For the last moments of a process: a stop that comes after all is done must not change its exit code."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
