"""A request to stop: the first signal asks the trainer to finish its step and save, the second one leaves at once."""

import os
import signal
from types import FrameType, TracebackType

from yolov9.errors import ExitCode
from yolov9.logs import LOG

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Takes SIGTERM and SIGINT while it is open as a context; the former handlers come back afterwards."""

    def __init__(self) -> None:
        self.requested = False
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
        LOG.warning(
            "%s: finishing this step and saving; the same signal again leaves at once", signal.Signals(number).name
        )
