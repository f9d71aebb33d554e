"""What a run notes in its plan.json."""

import json
from pathlib import Path

from yolov9.engine.micro_batches import MemoryEvent
from yolov9.engine.plan_record import MEMORY_EVENTS, PLAN_FILE, record_memory_event


def test_epochs_and_batches_are_noted_as_the_log_counts_them(tmp_path: Path) -> None:
    (tmp_path / PLAN_FILE).write_text("{}")
    record_memory_event(tmp_path, MemoryEvent(before=8, after=4, reason="out of memory"), epoch=0, batch=2)
    (event,) = json.loads((tmp_path / PLAN_FILE).read_text())[MEMORY_EVENTS]
    assert (event["epoch"], event["batch"], event["before"], event["after"]) == (1, 3, 8, 4)
