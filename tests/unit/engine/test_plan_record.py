"""What a run notes in its plan.json."""

import json
import multiprocessing
from pathlib import Path

from yolov9.engine.micro_batches import MemoryEvent
from yolov9.engine.plan_record import MEMORY_EVENTS, PLAN_FILE, record_memory_event

NOTES = 20


def test_epochs_and_batches_are_noted_as_the_log_counts_them(tmp_path: Path) -> None:
    (tmp_path / PLAN_FILE).write_text("{}")
    record_memory_event(tmp_path, MemoryEvent(before=8, after=4, reason="out of memory"), epoch=0, batch=2)
    (event,) = json.loads((tmp_path / PLAN_FILE).read_text())[MEMORY_EVENTS]
    assert (event["epoch"], event["batch"], event["before"], event["after"]) == (1, 3, 8, 4)


def note_often(folder: Path, rank: int) -> None:
    for batch in range(NOTES):
        event = MemoryEvent(before=8, after=4, reason="out of memory")
        record_memory_event(folder, event, epoch=0, batch=batch, rank=rank)


def test_ranks_that_run_out_of_memory_together_are_all_noted(tmp_path: Path) -> None:
    (tmp_path / PLAN_FILE).write_text("{}")
    ranks = [multiprocessing.get_context("fork").Process(target=note_often, args=(tmp_path, rank)) for rank in (0, 1)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    events = json.loads((tmp_path / PLAN_FILE).read_text())[MEMORY_EVENTS]
    assert sorted((event["rank"], event["batch"]) for event in events) == [
        (rank, batch + 1) for rank in (0, 1) for batch in range(NOTES)
    ]
