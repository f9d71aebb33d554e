"""The number of workers follows the training; the batches do not."""

import math
import os
from dataclasses import replace
from itertools import count

import pytest

from yolov9.data.loader import open_loader
from yolov9.engine import worker_control
from yolov9.engine.worker_control import INTERVAL_S, Interval, WorkerControl, next_count

QUIET = {"workers": 8, "waited": 0.0, "always_full": False, "busy_cpus": 6.0, "starved": 0.0}


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        ({}, 8),
        ({"waited": 0.3}, 11),
        ({"waited": 0.3, "workers": 15}, 16),
        ({"waited": 0.03, "workers": 2}, 3),
        ({"waited": 0.9, "workers": 1}, 10),
        ({"waited": 0.99, "workers": 1}, 10),
        ({"waited": 0.3, "starved": 0.5}, 8),
        ({"always_full": True, "busy_cpus": 2.0}, 3),
        ({"always_full": True, "busy_cpus": 0.0}, 1),
        ({"always_full": True, "busy_cpus": 7.9}, 8),
        ({"always_full": False, "busy_cpus": 2.0}, 8),
    ],
)
def test_waiting_adds_workers_where_cpus_are_free_and_a_full_ring_ends_those_without_work(seen, wanted):
    assert next_count(Interval(**{**QUIET, **seen}), least=1, most=16) == wanted


def test_a_number_that_was_too_small_is_not_tried_again():
    seen = Interval(**{**QUIET, "always_full": True, "busy_cpus": 1.0})
    assert next_count(seen, least=5, most=16) == 5


def watched(loader, control, epoch):
    """Batches of an epoch, each taken when everything that was asked for lies ready."""
    for batch in control.watch(loader.epoch(epoch)):
        yield batch
        while not loader.all_prepared:
            os.sched_yield()


@pytest.mark.parametrize(("fixed", "left"), [(False, 1), (True, 3)])
def test_workers_end_while_the_ring_is_full_and_batches_stay_the_same(
    settings, contents, fixed, left, caplog, monkeypatch
):
    monkeypatch.setattr(worker_control, "LEAST_BATCHES", 3)
    caplog.set_level("INFO")
    with open_loader(settings(workers=0)) as loader:
        expected = contents(loader.epoch(0)) + contents(loader.epoch(1))
    ticks = count(step=INTERVAL_S)
    with open_loader(settings(workers=3, batch_size=4, slots=3, epochs=4)) as loader:
        control = WorkerControl(loader, fixed=fixed, clock=lambda: next(ticks))
        found = contents(watched(loader, control, 0)) + contents(watched(loader, control, 1))
        assert loader.worker_count == left
    assert found == expected
    assert ("loader processes 3 -> 1 of at most 3" in caplog.text) != fixed


def test_a_few_slow_batches_end_no_worker(settings, contents):
    """The first steps of a run compile kernels: the ring is full then, whatever the training needs later."""
    ticks = count(step=INTERVAL_S)
    with open_loader(settings(workers=3, batch_size=4, slots=3, epochs=4)) as loader:
        contents(watched(loader, WorkerControl(loader, clock=lambda: next(ticks)), 0))
        assert loader.worker_count == 3


def test_a_second_of_waiting_is_decided_upon_at_once(settings, contents, monkeypatch):
    monkeypatch.setattr(worker_control, "NO_CPU_FREE", math.inf)  # whatever else this machine does
    waits = 10 * worker_control.WAITED_ENOUGH_S
    ticks = count(step=1.1 * waits)
    with open_loader(settings(workers=8, batch_size=4, slots=3, epochs=4)) as loader:
        control = WorkerControl(loader, clock=lambda: next(ticks))
        loader.set_workers(1)
        contents(control.watch(replace(batch, wait_s=waits) for batch in loader.epoch(0)))
        assert loader.worker_count > 1
