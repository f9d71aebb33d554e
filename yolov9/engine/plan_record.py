"""What a run finds out while it starts or trains, noted in its plan.json beside what was planned."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yolov9.config.settings import TrainSettings
from yolov9.engine.atomic_file import write_text_atomically
from yolov9.logs import LOG

if TYPE_CHECKING:
    from yolov9.engine.micro_batches import MemoryEvent  # Imports torch, and the planner reads this module too.

PLAN_FILE = "plan.json"
MEMORY_EVENTS = "memory_events"
RESUMED = "resumed run"
"""How the source of an option begins that was given when the run was first started, not now."""


def note_in_plan(run_dir: Path, name: str, value: Any) -> None:
    """Sets an entry in the plan of a run; a run that nobody planned has no such file, and a full disk is only said."""
    _change(run_dir, lambda plan: plan.update({name: value}))


def record_memory_event(run_dir: Path, event: "MemoryEvent", *, epoch: int, batch: int, rank: int = 0) -> None:
    """Adds a change of the micro-batch to the plan of a run.

    Args:
        run_dir: folder of the run.
        event: what changed.
        epoch: epoch during which it changed, from 0; it is noted as in the log, from 1.
        batch: loaded batch of that epoch, from 0; noted from 1.
        rank: whose micro-batch it is.
    """
    entry = {"epoch": epoch + 1, "batch": batch + 1, "rank": rank, **vars(event)}
    _change(run_dir, lambda plan: plan.setdefault(MEMORY_EVENTS, []).append(entry))


def note_refused(run_dir: Path, kept: dict[str, Any]) -> None:
    """Puts what a resumed run keeps in place of what was asked for and refused, so that it does not come back.

    Args:
        run_dir: folder of the run.
        kept: names of refused settings and the values that the run goes on with.
    """
    defaults = asdict(TrainSettings())

    def change(plan: dict[str, Any]) -> None:
        plan["settings"].update(kept)
        request = plan.setdefault("request", {})
        for name, value in kept.items():
            request[name] = {"value": value, "source": f"{RESUMED}, kept"}
            if value == defaults[name]:
                del request[name]

    if kept:
        _change(run_dir, change)


def _change(run_dir: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    file = run_dir / PLAN_FILE
    try:
        with _one_at_a_time(run_dir):
            plan = json.loads(file.read_text(encoding="utf-8"))
            change(plan)
            write_text_atomically(file, json.dumps(plan, indent=1) + "\n")
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        LOG.warning("what was found out could not be noted in %s: %s", file, error)


@contextmanager
def _one_at_a_time(run_dir: Path) -> Iterator[None]:
    """Lets ranks change the file one after the other; a file system without locks takes that chance."""
    folder = os.open(run_dir, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
