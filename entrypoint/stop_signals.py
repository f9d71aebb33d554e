"""What a stop signal does to this process while no trainer runs that it could be passed on to."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_is_interrupt() -> Iterator[None]:
    """A stop is a KeyboardInterrupt inside, so that what was begun can be removed.

    Without a handler SIGTERM would end this process at once, or not at all when it is process 1. Only the first signal
    counts: a second one must not break off the removal.
    """
    heard = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        if not heard:
            heard = True
            raise KeyboardInterrupt

    with _handlers(interrupt):
        yield


@contextmanager
def stops_ignored() -> Iterator[None]:
    """Inside nothing is broken off."""
    with _handlers(signal.SIG_IGN):
        yield


@contextmanager
def _handlers(handler: "signal._HANDLER") -> Iterator[None]:
    former = {number: signal.signal(number, handler) for number in STOPS}
    try:
        yield
    finally:
        for number, was in former.items():
            signal.signal(number, was)
