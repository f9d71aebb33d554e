"""`train`, `val` and `detect`: request, facts, plan, run folder, and then the trainer under supervision."""

import json
import logging
import shlex
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from entrypoint.plan import Plan
from entrypoint.plan.folders import project_of
from entrypoint.prepare import plan_job, prepare_request, read_watch, write_plan
from entrypoint.request import JobRequest, Source
from entrypoint.resume import epochs_left, interrupted_run
from entrypoint.rundir import check_writable, make_run_dir
from entrypoint.supervise import Ending
from entrypoint.table import DOES_NOT_FIT, GIVES_WAY, plan_table
from entrypoint.trainer_process import run_trainer
from yolov9.config.settings import TrainSettings
from yolov9.engine.atomic_file import write_text_atomically
from yolov9.engine.plan_record import MEMORY_EVENTS, PLAN_FILE
from yolov9.errors import ExitCode
from yolov9.logs import LOG, setup_logging

NOTHING_TO_GO_ON = frozenset({ExitCode.DONE, ExitCode.USAGE, ExitCode.BAD_DATA, ExitCode.DIVERGED})
"""Exit codes after which `--resume` alone would not do: done, or something else has to be put right first."""


def run_job(command: str, argv: Sequence[str]) -> int:
    """Runs a command on a model; returns its exit code.

    Raises:
        UserError: the request cannot be met; nothing was started.
        KeyboardInterrupt: a stop was asked for while no trainer was running.
    """
    request, run_dir = prepare_request(command, argv)
    setup_logging(quiet=request.settings.quiet)
    goes_on = run_dir is not None
    if run_dir is None:
        _say_unfinished(request)
        run_dir = make_run_dir(project_of(request), request.settings.name, exist_ok=request.settings.exist_ok)
    else:
        check_writable(run_dir)
    saved_at_ns = _saved_at_ns(run_dir)
    ending, plan = _run_once(request, run_dir)
    if ending.exit_code == ExitCode.DIVERGED and plan.value("amp") != "off":
        LOG.warning("half precision may be the cause: back to the last checkpoint, and on with --amp off")
        goes_on = goes_on or _saved_at_ns(run_dir) != saved_at_ns
        ending, _ = _run_once(_in_float32(request, plan, interrupted_run(run_dir) if goes_on else ""), run_dir)
    if ending.exit_code not in NOTHING_TO_GO_ON and (goes_on or _saved_at_ns(run_dir) != saved_at_ns):
        LOG.info("to go on from the last checkpoint: train --resume %s", shlex.quote(str(run_dir)))
    return ending.exit_code


def _run_once(request: JobRequest, run_dir: Path) -> tuple[Ending, Plan]:
    """Plans a job and runs its trainer."""
    former, saved_at_ns = _text_of(run_dir / PLAN_FILE), _saved_at_ns(run_dir)
    try:
        facts, plan = plan_job(request, clean=True)
    except BaseException:
        _remove_if_empty(run_dir)
        raise
    for line in plan_table(plan).splitlines():
        bad = any(mark in line for mark in (GIVES_WAY, DOES_NOT_FIT))
        LOG.log(logging.WARNING if bad else logging.INFO, "%s", line)
    LOG.info("results: %s", run_dir)
    with _copy_of_data(request, plan) as copy:
        ending = run_trainer(write_plan(run_dir, request, facts, plan, data_copy=copy, **_noted(former)), facts, plan)
    if copy and ending.exit_code == ExitCode.BAD_DATA:
        LOG.error(
            "paths that begin with %s/files are of the copy; the originals are called as what follows",
            Path(copy).parent,
        )
    refused = ending.exit_code in (ExitCode.USAGE, ExitCode.BAD_DATA, ExitCode.NO_GPU)
    if refused and _saved_at_ns(run_dir) == saved_at_ns:
        if former:
            write_text_atomically(run_dir / PLAN_FILE, former)  # What was refused must not come back with --resume.
        elif {path.name for path in run_dir.rglob("*")} <= {PLAN_FILE, "weights"}:
            shutil.rmtree(run_dir, ignore_errors=True)
    return ending, plan


def _in_float32(request: JobRequest, plan: Plan, checkpoint: str) -> JobRequest:
    """The same job without half precision, from its last checkpoint on, or from the start when it has none ("")."""
    source = Source(value="off", source=f"diverged in {plan.value('amp')}")
    settings = request.settings
    assert isinstance(settings, TrainSettings), "only a training diverges"
    settings = replace(settings, amp="off", resume=checkpoint)
    return replace(request, settings=settings, given={**request.given, "amp": source})


def _saved_at_ns(run_dir: Path) -> int:
    """When last.pt was written: with `--exist-ok` the one that lies there may be of another run."""
    try:
        return (run_dir / "weights" / "last.pt").stat().st_mtime_ns
    except OSError:
        return 0


def _copy_of_data(request: JobRequest, plan: Plan) -> AbstractContextManager[str]:
    """Copies the data set if the plan says so; gives the data.yaml of the copy, or ""."""
    target = plan.value("stage")
    if target in (None, "off"):
        return nullcontext("")
    from entrypoint.staging.hold import data_copy  # Takes a quarter of a second, and is not always needed.

    return data_copy(getattr(request.settings, "data", ""), target, request.environment, read_watch(request))


def _say_unfinished(request: JobRequest) -> None:
    """A second `train --name X` is often meant to go on with the first."""
    former = Path(project_of(request)) / request.settings.name
    left = epochs_left(former) if request.command == "train" else None
    if left is not None:
        LOG.warning(
            "%s has trained %d of %d epochs; to go on with it instead: train --resume %s", former, *left, former
        )


def _noted(former: str) -> dict[str, Any]:
    """What the run had noted in its former plan and is to be kept when it goes on."""
    try:
        return {MEMORY_EVENTS: json.loads(former)[MEMORY_EVENTS]}
    except (ValueError, KeyError, TypeError):
        return {}


def _text_of(file: Path) -> str:
    """Returns the content; "" when there is none, or none that this program wrote."""
    try:
        return file.read_text(encoding="utf-8") if file.is_file() else ""
    except ValueError:
        return ""


def _remove_if_empty(run_dir: Path) -> None:
    """A refused job leaves no folder behind."""
    try:
        run_dir.rmdir()
    except OSError:
        LOG.debug("%s is kept, it is not empty", run_dir)
