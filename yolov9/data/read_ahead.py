"""Reads the next items in a thread while the current ones are worked on."""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

LOOK_PERIOD_S = 0.1
"""How often a thread that waits for room looks whether it is still needed."""


def read_ahead(items: Iterable[Item], depth: int) -> Iterator[Item]:
    """Yields the items in order; up to `depth` of them are ready before they are asked for.

    An error of the iterable is raised here, after the items before it. When the consumer stops early, the thread ends
    after the item it is reading.
    """
    ready: queue.Queue[tuple[Item] | BaseException | None] = queue.Queue(depth)
    stop = threading.Event()
    thread = threading.Thread(target=_read, args=(items, ready, stop), name="read ahead", daemon=True)
    thread.start()
    try:
        while (entry := ready.get()) is not None:
            if isinstance(entry, BaseException):
                raise entry
            yield entry[0]
    finally:
        stop.set()
        thread.join()


def _read(
    items: Iterable[Item], ready: "queue.Queue[tuple[Item] | BaseException | None]", stop: threading.Event
) -> None:
    try:
        for item in items:
            if not _put(ready, (item,), stop):
                return
        _put(ready, None, stop)
    except BaseException as error:  # carried to the consumer, whatever it is
        _put(ready, error, stop)


def _put(
    ready: "queue.Queue[tuple[Item] | BaseException | None]",
    entry: tuple[Item] | BaseException | None,
    stop: threading.Event,
) -> bool:
    """Waits for room; False when nobody wants the entry any more."""
    while not stop.is_set():
        try:
            ready.put(entry, timeout=LOOK_PERIOD_S)
        except queue.Full:
            continue
        return True
    return False
