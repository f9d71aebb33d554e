"""Finds the run that `--resume` means and what it was asked to do."""

import json
from pathlib import Path

from entrypoint.request import Source
from yolov9.engine.atomic_file import previous_of
from yolov9.engine.find_weights import newest_run
from yolov9.engine.plan_record import PLAN_FILE
from yolov9.errors import UserError

OF_THIS_START = frozenset({"resume", "continue_run", "project", "name", "exist_ok", "config", "strict", "quiet"})
"""Options that belong to one start of a run, not to the run."""
RESUMED = "resumed run"
"""How the source of an option begins that was given when the run was first started."""


def find_run(wanted: str, project: Path) -> tuple[Path, Path]:
    """Returns a run's folder and its checkpoint.

    Args:
        wanted: "auto" for the newest run, a run folder, or a checkpoint in `RUN/weights`.
        project: folder that holds the runs.

    Raises:
        UserError: there is no such run or checkpoint.
    """
    if wanted == "auto":
        newest = newest_run(project)
        if newest is None:
            raise _nothing(f"--resume: no last.pt under {project.absolute()}")
        checkpoint = newest
    else:
        path = Path(wanted).expanduser()
        checkpoint = path / "weights" / "last.pt" if path.is_dir() else path
    if not checkpoint.is_file() and not previous_of(checkpoint).is_file():
        raise _nothing(f"--resume {wanted}: no such file ({checkpoint.absolute()})")
    return checkpoint.absolute().parents[1], checkpoint.absolute()


def interrupted_run(run_dir: Path) -> str:
    """Returns the checkpoint that `--continue` goes on from, or "" when there is none yet.

    Whether the run is finished stands in the checkpoint; the trainer looks.
    """
    checkpoint = run_dir.absolute() / "weights" / "last.pt"
    return str(checkpoint) if checkpoint.is_file() or previous_of(checkpoint).is_file() else ""


def resumed_options(run_dir: Path) -> dict[str, Source]:
    """Returns the options that somebody gave when the run started; defaults stay open, the machine may be another."""
    file = run_dir / PLAN_FILE
    try:
        given = json.loads(file.read_text(encoding="utf-8"))["request"]
        return {
            name: Source(value=entry["value"], source=f"{RESUMED}, {str(entry['source']).removeprefix(f'{RESUMED}, ')}")
            for name, entry in given.items()
            if name not in OF_THIS_START
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def epochs_left(run_dir: Path) -> tuple[int, int] | None:
    """Returns how many epochs a run has trained and how many it was to train; None when there is nothing to go on with.

    Read from its tables, because opening a checkpoint takes PyTorch. A run that its patience ended counts as well: it
    can be extended.
    """
    if not interrupted_run(run_dir):
        return None
    try:
        wanted = int(json.loads((run_dir / PLAN_FILE).read_text(encoding="utf-8"))["settings"]["epochs"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    try:
        rows = (run_dir / "results.csv").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        rows = []
    trained = max(0, len(rows) - 1)
    return (trained, wanted) if trained < wanted else None


def _nothing(found: str) -> UserError:
    return UserError(
        found=found, needed="the last.pt of a run that was stopped", remedy="--resume runs/train/exp/weights/last.pt"
    )
