"""What surrounds the recording of a CUDA graph; recording itself needs a GPU (tests/gpu)."""

import gc
import weakref

import pytest

from yolov9.engine.captured import no_garbage_collection


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def lost_cycle() -> "weakref.ref[Cycle]":
    return weakref.ref(Cycle())


def test_garbage_goes_before_and_not_during_a_recording() -> None:
    before = lost_cycle()
    with no_garbage_collection():
        assert before() is None
        during = lost_cycle()
        litter = [[] for _ in range(100_000)]  # enough to start a collection
        assert during() is not None
    del litter
    gc.collect()
    assert during() is None


def test_collection_goes_on_after_a_recording_that_failed() -> None:
    with pytest.raises(RuntimeError), no_garbage_collection():
        raise RuntimeError
    assert gc.isenabled()
