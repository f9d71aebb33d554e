"""Changes of the micro-batch, noted in the plan.json of a run beside what was planned."""

import json
from pathlib import Path

from yolov9.engine.atomic_file import write_text_atomically
from yolov9.engine.micro_batches import MemoryEvent
from yolov9.logs import LOG

PLAN_FILE = "plan.json"
EVENTS = "memory_events"


def record_memory_event(run_dir: Path, event: MemoryEvent, *, epoch: int, batch: int) -> None:
    """Adds an event to the plan of a run; a run that nobody planned has no such file, and a full disk is only said.

    Args:
        run_dir: folder of the run.
        event: what changed.
        epoch: epoch during which it changed, from 0.
        batch: loaded batch of that epoch, from 0.
    """
    file = run_dir / PLAN_FILE
    try:
        plan = json.loads(file.read_text(encoding="utf-8"))
        plan.setdefault(EVENTS, []).append({"epoch": epoch, "batch": batch, **vars(event)})
        write_text_atomically(file, json.dumps(plan, indent=1) + "\n")
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        LOG.warning("the change of the micro-batch could not be noted in %s: %s", file, error)
