"""Finds the run that `--resume` means and what it was asked to do."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from entrypoint.request import JobRequest, Source
from yolov9.config.settings import TrainSettings
from yolov9.engine.atomic_file import previous_of
from yolov9.engine.find_weights import newest_run
from yolov9.engine.plan_record import PLAN_FILE, RESUMED
from yolov9.errors import UserError

OF_THIS_START = frozenset({"resume", "continue_run", "project", "name", "exist_ok", "config", "strict", "quiet"})
"""Options that belong to one start of a run, not to the run."""
IN_CHECKPOINT = frozenset({"cfg", "hyp", "weights"})
"""Options that name files of which all that a run needs is in its checkpoint: they may be gone when it goes on."""


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
    checkpoint = checkpoint.parent.resolve() / checkpoint.name
    return checkpoint.parents[1], checkpoint


def interrupted_run(run_dir: Path) -> str:
    """Returns the checkpoint that `--continue` goes on from, or "" when there is none yet.

    Whether the run is finished stands in the checkpoint; the trainer looks.
    """
    checkpoint = run_dir.absolute() / "weights" / "last.pt"
    return str(checkpoint) if checkpoint.is_file() or previous_of(checkpoint).is_file() else ""


def resumed_options(run_dir: Path) -> dict[str, Source]:
    """Returns the options that somebody gave when the run started; defaults stay open, the machine may be another.

    `--accumulate` counts batches of the machine that the run was started on: what stays is the pictures of a step.
    """
    former = _former_plan(run_dir)
    try:
        options = {
            name: Source(value=entry["value"], source=f"{RESUMED}, {str(entry['source']).removeprefix(f'{RESUMED}, ')}")
            for name, entry in former["request"].items()
            if name not in OF_THIS_START | IN_CHECKPOINT
        }
    except (KeyError, TypeError, AttributeError):
        return {}
    if "data" in options:
        options["data"] = replace(options["data"], value=former.get("settings", {}).get("data", options["data"].value))
    accumulate, pictures = options.get("accumulate"), _pictures_per_step(former)
    if pictures and (accumulate or _loaded_together(former, pictures)):
        options.pop("accumulate", None)
        source = accumulate.source if accumulate else RESUMED
        options.setdefault("optimisation_batch", Source(value=pictures, source=source))
    return options


def with_decisions_of_run(request: JobRequest, run_dir: Path) -> JobRequest:
    """Returns the request with the model that a run trains and the cache that it had, where its plan tells.

    Pictures from the cache are reduced in another way than freshly decoded ones: `--cache auto` stays what it became.
    """
    decisions = _former_plan(run_dir).get("decisions", [])
    values = {str(decision.get("name")): str(decision.get("value")) for decision in decisions}
    request = replace(request, cache_of_run=values.get("cache", ""))
    model = values.get("model", "")
    return replace(request, model=model, model_source=RESUMED) if model else request


def with_pictures_of_run(request: JobRequest, run_dir: Path) -> JobRequest:
    """Returns the request with the pictures per optimizer step that a run was started with.

    Where neither these nor `--accumulate` are typed, a step stays as many passes of `--batch N` as make them.

    Raises:
        UserError: a batch is asked for that is larger than that.
    """
    former, settings = _former_plan(run_dir), request.settings
    if not isinstance(settings, TrainSettings):
        return request
    passes = _growing_passes(former)
    if passes:
        _check_batch(request, settings, passes, f"{passes} pictures at a time, of which a step takes more and more")
        return replace(request, passes_of_run=passes)
    pictures = _pictures_per_step(former)
    if not pictures:
        return request
    _check_batch(request, settings, pictures, f"{pictures} pictures per optimizer step")
    given = request.was_given("optimisation_batch")
    if (given and settings.optimisation_batch == pictures) or not (given or settings.accumulate):
        return request
    refused = f"{request.source('optimisation_batch')}: refused, the run was started with {pictures}"
    return replace(
        request,
        settings=replace(settings, optimisation_batch=pictures),
        given={**request.given, "optimisation_batch": Source(value=pictures, source=RESUMED)},
        notes=(*request.notes, refused) if given else request.notes,
    )


def _check_batch(request: JobRequest, settings: TrainSettings, most: int, what: str) -> None:
    if settings.batch_size and settings.batch_size > most:
        raise UserError(
            found=f"{request.source('batch_size')}, and a run with {what}",
            needed="a batch that is no larger: these stay when a run goes on",
            remedy=f"--batch {most}, or less",
        )


def _former_plan(run_dir: Path) -> Mapping[str, Any]:
    """Returns what a run was started with; nothing when no plan of ours lies there."""
    try:
        plan = json.loads((run_dir / PLAN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return plan if isinstance(plan, dict) else {}


def _pictures_per_step(plan: Mapping[str, Any]) -> int | None:
    """Returns the optimisation batch of a plan; None where it grows, or is not known."""
    settings = plan.get("settings")
    if not isinstance(settings, dict) or settings.get("dynamic_accumulate"):
        return None
    pictures = settings.get("optimisation_batch")
    return pictures if isinstance(pictures, int) else None


def _growing_passes(plan: Mapping[str, Any]) -> int | None:
    """Returns what a plan loads at a time on all ranks, where the batches of a step grow; None where they do not."""
    settings = plan.get("settings")
    grows = isinstance(settings, dict) and settings.get("dynamic_accumulate")
    return _loaded(plan) if grows else None


def _loaded_together(plan: Mapping[str, Any], pictures: int) -> bool:
    """Says whether a step of this run was one loaded batch, in parts that fit: it stays one, whatever the parts."""
    return _loaded(plan) == pictures


def _loaded(plan: Mapping[str, Any]) -> int | None:
    """Returns the pictures that all ranks of a plan load at a time."""
    decisions = plan.get("decisions", [])
    ranks: int = next((decision["value"] for decision in decisions if decision.get("name") == "ranks"), 1)
    loaded = plan["settings"].get("batch_size")
    return loaded * ranks if isinstance(loaded, int) else None


def epochs_left(run_dir: Path) -> tuple[int, int] | None:
    """Returns how many epochs a run has trained and how many it was to train; None when there is nothing to go on with.

    Read from its tables, because opening a checkpoint takes PyTorch. A run that its patience ended counts as well: it
    can be extended.
    """
    if not interrupted_run(run_dir):
        return None
    try:
        wanted = int(_former_plan(run_dir)["settings"]["epochs"])
    except (ValueError, KeyError, TypeError):
        return None
    try:
        rows = (run_dir / "results.csv").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        rows = []
    trained = max(0, len(rows) - 1)
    return (trained, wanted) if trained < wanted else None


def _nothing(found: str) -> UserError:
    return UserError(
        found=found,
        needed="the last.pt of a run that was stopped",
        remedy="--resume RUN with the folder of that run, or leave --resume out to start a new one",
    )
