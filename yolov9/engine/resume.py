"""Going on with a run: which settings, and what is said about each of them."""

import shlex
from collections.abc import Collection
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from yolov9.config.recipe import Recipe, recipe_from_dict
from yolov9.config.settings import TrainSettings
from yolov9.errors import UserError
from yolov9.logs import LOG

ALWAYS_NEW = frozenset(
    {
        "amp",
        "cache",
        "cache_limit_gb",
        "continue_run",
        "decode",
        "decode_again",
        "device",
        "exist_ok",
        "fixed_workers",
        "gpu_share",
        "micro_batch",
        "name",
        "prefetch",
        "project",
        "quiet",
        "resume",
        "stage",
        "worker_timeout_s",
        "workers",
    }
)
"""Settings that describe the machine or this command, so they are taken as they are now."""
SAID = frozenset({"amp", "cache", "decode", "device", "stage", "workers"})
"""Those of them that are worth a line when they are others than before."""
MAY_CHANGE = frozenset(
    {
        "accumulate",
        "batch_size",
        "checkpoint_activations",
        "close_mosaic",
        "data",
        "epochs",
        "noplots",
        "nosave",
        "noval",
        "patience",
        "plain_step",
        "save_minutes",
        "save_period",
        "sync_bn",
    }
)
"""Settings that stay those of the run unless they are typed again. All others make the run what it is: refused."""


def merge_settings(
    saved: dict[str, Any], now: TrainSettings, given: Collection[str] | None = None
) -> tuple[TrainSettings, list[str]]:
    """Joins the settings of a run with those of the command that resumes it.

    Args:
        saved: settings in the checkpoint.
        now: settings of this command.
        given: names that the user typed; None: those that differ from the defaults.

    Returns:
        The settings to use, and one line for each that was kept, overridden or refused.
    """
    defaults, current = asdict(TrainSettings()), asdict(now)
    typed = {name for name in current if current[name] != defaults[name]} if given is None else set(given)
    values: dict[str, Any] = {}
    lines: list[str] = []
    for name in (field.name for field in fields(TrainSettings)):
        old, new = saved.get(name, defaults[name]), current[name]
        values[name] = old
        if name in ALWAYS_NEW:
            values[name] = new
            if name in SAID and new != old:
                lines.append(f"overridden  {name} = {new} (was {old})")
        elif name == "batch_size":
            values[name], line = _batch_line(saved, current, typed=name in typed)
            lines.append(line)
        elif name not in typed or new == old:
            if old != defaults[name]:
                lines.append(f"kept        {name} = {old}")
        elif name in MAY_CHANGE:
            values[name] = new
            lines.append(f"overridden  {name} = {new} (was {old})")
        else:
            before = "without it" if old is None else f"with {old}"
            lines.append(f"refused     {name} = {new}: the run was started {before}")
    return _keep_optimisation_batch(TrainSettings(**values), saved, typed), lines


def _batch_line(saved: dict[str, Any], current: dict[str, Any], *, typed: bool) -> tuple[int | None, str]:
    """Returns the pictures that are loaded at a time, and what is said about them and the parts that they go in."""
    old, planned = saved.get("batch_size"), current["batch_size"]
    smaller = planned is not None and old is not None and 0 < planned < old
    new = planned if typed or smaller else old
    before, now = _batch_text(old, saved.get("micro_batch")), _batch_text(new, current["micro_batch"])
    if before == now:
        return new, f"kept        batch_size = {now}"
    why = "" if typed else ", what the plan for this machine gives"
    return new, f"overridden  batch_size = {now} (was {before}){why}"


def _batch_text(loaded: int | None, part: int | None) -> str:
    if part is None or loaded is None or part >= loaded:
        return str(loaded)
    return f"{loaded} in parts of {part}" if part > 0 else f"{loaded} in parts that are measured"


def refused_settings(asked: TrainSettings, merged: TrainSettings, given: Collection[str] | None) -> dict[str, Any]:
    """Returns the values that a run keeps where another one was typed."""
    pairs = {name: (getattr(asked, name), getattr(merged, name)) for name in given or () if hasattr(merged, name)}
    return {name: kept for name, (typed, kept) in pairs.items() if kept != typed}


def recipe_of(content: dict[str, Any]) -> Recipe:
    """Returns the recipe that a resumed run was started with.

    Raises:
        UserError: another version wrote it, with a name or a value that this one does not know.
    """
    try:
        return recipe_from_dict(content["training"]["recipe"], "of the resumed run")
    except UserError as error:
        raise UserError(
            found=error.found,
            needed="a run that was started with a recipe of this version",
            remedy="--resume with the version that wrote it, or a new run: without --resume",
        ) from None


def nothing_left(content: dict[str, Any], settings: TrainSettings) -> bool:
    """Tells whether a run came to its end, by its epochs or by its patience, and the command asks for no more."""
    progress, saved = content["training"]["progress"], content["training"]["settings"]
    extended = settings.epochs > saved["epochs"] or settings.patience != saved["patience"]
    return progress["finished"] and not (settings.epochs > progress["epoch"] and extended)


def already_finished(path: Path, content: dict[str, Any]) -> UserError:
    """Returns the error for a run that was resumed from a checkpoint with nothing left to do."""
    run_dir = path.parents[1]
    progress, saved = content["training"]["progress"], content["training"]["settings"]
    return UserError(
        found=f"{run_dir} is finished: {progress['epoch']} of {saved['epochs']} epochs were trained",
        needed="more epochs than before, to extend it",
        remedy=f"--resume {shlex.quote(str(run_dir))} --epochs {saved['epochs'] + 10}",
    )


def log_resume(path: Path, content: dict[str, Any], lines: list[str]) -> None:
    """Says from where a run goes on and what happened to each setting."""
    progress = content["training"]["progress"]
    LOG.info("resuming %s in epoch %d after %d batches", path, progress["epoch"] + 1, progress["batch"])
    for line in lines:
        LOG.info("  %s", line)


def _keep_optimisation_batch(settings: TrainSettings, saved: dict[str, Any], typed: set[str]) -> TrainSettings:
    """Another micro-batch keeps the pictures per optimizer step unless --accumulate is typed as well."""
    accumulate, batch = saved.get("accumulate"), saved.get("batch_size")
    if accumulate is None or batch is None or settings.batch_size == batch or "accumulate" in typed:
        return settings
    return replace(settings, accumulate=None, optimisation_batch=accumulate * batch)
