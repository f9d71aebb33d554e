"""Reading ahead keeps the order, carries errors and ends with its consumer."""

import threading
from collections.abc import Iterator

import pytest

from yolov9.data.read_ahead import read_ahead


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "read ahead"]


def test_items_come_in_order():
    assert list(read_ahead(range(100), depth=3)) == list(range(100))
    assert _threads() == []


def test_an_error_comes_after_the_items_before_it():
    def items() -> Iterator[int]:
        yield 1
        raise OSError("disk")

    seen = []
    with pytest.raises(OSError, match="disk"):
        seen += read_ahead(items(), depth=5)
    reader = read_ahead(items(), depth=5)
    assert next(reader) == 1
    with pytest.raises(OSError, match="disk"):
        next(reader)


def test_a_consumer_that_stops_early_ends_the_thread():
    reader = read_ahead(iter(int, 1), depth=1)
    assert next(reader) == 0
    reader.close()
    assert _threads() == []
