"""`train`, `val` and `detect`: request, facts, plan, run folder, and then the trainer under supervision."""

import json
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yolov9
from entrypoint.contradictions import check_request
from entrypoint.host import HostFacts, read_facts
from entrypoint.inputs import resolve_inputs
from entrypoint.plan import Plan, make_plan, planned_settings
from entrypoint.plan.folders import folders_to_read, project_of
from entrypoint.plan.processes import check_processes
from entrypoint.request import JobRequest, Source, make_request
from entrypoint.resume import epochs_left, find_run, interrupted_run, resumed_options
from entrypoint.rundir import check_writable, make_run_dir, not_writable
from entrypoint.stop_signals import stop_is_interrupt
from entrypoint.supervise import Ending, explain, say_resumable, supervise
from entrypoint.table import DOES_NOT_FIT, GIVES_WAY, plan_table
from entrypoint.units import size_text
from yolov9.config.environment import read_environment
from yolov9.config.settings import TrainSettings
from yolov9.engine.atomic_file import write_text_atomically
from yolov9.engine.plan_record import MEMORY_EVENTS, PLAN_FILE
from yolov9.errors import ExitCode
from yolov9.logs import LOG, setup_logging
from yolov9.read_watch import READ_TIMEOUT_S, ReadWatch, reading

CODE_DIR = Path(__file__).parents[1]
"""Folder that holds the packages; on the path of children, whatever the working folder holds."""


def run_job(command: str, argv: Sequence[str]) -> int:
    """Runs a command on a model; returns its exit code.

    Raises:
        UserError: the request cannot be met; nothing was started.
        KeyboardInterrupt: a stop was asked for while no trainer was running.
    """
    with stop_is_interrupt():
        return _run_job(command, argv)


def _run_job(command: str, argv: Sequence[str]) -> int:
    request, run_dir = prepare_request(command, argv)
    setup_logging(quiet=request.settings.quiet)
    if run_dir is None:
        _say_unfinished(request)
        run_dir = make_run_dir(project_of(request), request.settings.name, exist_ok=request.settings.exist_ok)
    else:
        check_writable(run_dir)
    ending, plan = _run_once(request, run_dir)
    if ending.exit_code == ExitCode.DIVERGED and plan.value("amp") != "off":
        LOG.warning("half precision may be the cause: back to the last checkpoint, and on with --amp off")
        ending, _ = _run_once(_in_float32(request, run_dir, plan), run_dir)
    say_resumable(ending, run_dir)
    return ending.exit_code


def _run_once(request: JobRequest, run_dir: Path) -> tuple[Ending, Plan]:
    """Plans a job and runs its trainer."""
    former = _text_of(run_dir / PLAN_FILE)
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
    if former and ending.exit_code in (ExitCode.USAGE, ExitCode.BAD_DATA):
        write_text_atomically(run_dir / PLAN_FILE, former)  # What was refused must not come back with --resume.
    return ending, plan


def _in_float32(request: JobRequest, run_dir: Path, plan: Plan) -> JobRequest:
    """The same job without half precision, from its last checkpoint on, or from the start when it has none."""
    source = Source(value="off", source=f"diverged in {plan.value('amp')}")
    settings = request.settings
    assert isinstance(settings, TrainSettings), "only a training diverges"
    settings = replace(settings, amp="off", resume=interrupted_run(run_dir))
    return replace(request, settings=settings, given={**request.given, "amp": source})


def prepare_request(command: str, argv: Sequence[str], *, report: bool = False) -> tuple[JobRequest, Path | None]:
    """Returns the merged request with its inputs found, and the folder of the run that goes on, if any."""
    request = make_request(command, argv, report=report)
    check_request(request)
    with _read_watch(request), reading(project_of(request)):
        wanted = getattr(request.settings, "resume", "")
        if not wanted and getattr(request.settings, "continue_run", False):
            wanted = interrupted_run(Path(project_of(request)) / request.settings.name)
            request = replace(request, settings=replace(request.settings, exist_ok=True))
        if not wanted:
            return resolve_inputs(request), None
        run_dir, checkpoint = find_run(wanted, Path(project_of(request)))
        request = make_request(command, argv, report=report, resumed=resumed_options(run_dir))
        if isinstance(request.settings, TrainSettings):
            request = replace(request, settings=replace(request.settings, resume=str(checkpoint)))
        return resolve_inputs(request), run_dir


def plan_job(request: JobRequest, *, clean: bool = False) -> tuple[HostFacts, Plan]:
    """Reads the machine and makes the plan.

    Args:
        request: what is asked for.
        clean: remove what killed jobs left behind, so that its space counts as free.
    """
    with _read_watch(request):
        folders = folders_to_read(request, os.getuid())
        data = getattr(request.settings, "data", "")
        if data:
            folders.append(Path(data).parent)
        facts = read_facts(request.report.root, folders)
        check_processes(facts)  # Before threads are started to look at the data set.
        if data and getattr(request.settings, "stage", "off") != "off":
            from entrypoint.staging.survey import (
                survey_staging,
            )  # Takes a quarter of a second, and is not always needed.

            request = replace(request, staging=survey_staging(request, facts, clean=clean))
        return facts, make_plan(facts, request)


def plan_data(request: JobRequest, facts: HostFacts, plan: Plan, run_dir: Path | None) -> dict[str, Any]:
    """Returns everything about a job as plain values."""
    return {
        **plan.as_dict(),
        "settings": planned_settings(plan, request),
        "run_dir": None if run_dir is None else str(run_dir),
        "request": request.as_dict(),
        "facts": asdict(facts),
        "version": yolov9.__version__,
    }


def run_trainer(plan_file: Path, facts: HostFacts, plan: Plan) -> Ending:
    """Runs the trainer under supervision; how it ended is explained in the log unless it said so itself."""
    # PYTHONSAFEPATH: folders such as `data` in the working folder hide no module of ours.
    variables = {**plan.environment, "PYTHONPATH": _python_path(), "PYTHONSAFEPATH": "1"}
    ending = supervise(trainer_command(plan_file, plan), variables, plan.environment_defaults)
    explain(ending, suspects=_suspects(facts))
    return ending


def write_plan(run_dir: Path, request: JobRequest, facts: HostFacts, plan: Plan, **more: Any) -> Path:
    """Writes plan.json of a run, with `more` beside or in place of what a plan has, and returns its path."""
    file = run_dir / PLAN_FILE
    data = {**plan_data(request, facts, plan, run_dir), **more}
    text = json.dumps(data, indent=1, default=str)
    try:
        write_text_atomically(file, text + "\n")
    except OSError as error:
        raise not_writable(run_dir, error) from None
    return file


def trainer_command(plan_file: Path, plan: Plan) -> list[str]:
    """Returns the trainer's command line: one process, or one per rank."""
    trainer = [sys.executable, "-m", "yolov9", str(plan_file)]
    ranks = plan.value("ranks")
    return trainer if ranks in (None, 1) else [sys.executable, "-m", "entrypoint.ranks", str(ranks), *trainer]


def _copy_of_data(request: JobRequest, plan: Plan) -> AbstractContextManager[str]:
    """Copies the data set if the plan says so; gives the data.yaml of the copy, or ""."""
    target = plan.value("stage")
    if target in (None, "off"):
        return nullcontext("")
    from entrypoint.staging.hold import data_copy  # Takes a quarter of a second, and is not always needed.

    return data_copy(getattr(request.settings, "data", ""), target, request.environment, _read_watch(request))


def _read_watch(request: JobRequest) -> ReadWatch:
    return ReadWatch(getattr(request.settings, "worker_timeout_s", READ_TIMEOUT_S))


def _say_unfinished(request: JobRequest) -> None:
    """A second `train --name X` is often meant to go on with the first."""
    former = Path(project_of(request)) / request.settings.name
    left = epochs_left(former) if request.command == "train" else None
    if left is not None:
        LOG.warning(
            "%s has trained %d of %d epochs; to go on with it instead: train --resume %s", former, *left, former
        )


def _python_path() -> str:
    former = read_environment().python_path
    return f"{CODE_DIR}:{former}" if former else str(CODE_DIR)


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


def _suspects(facts: HostFacts) -> list[str]:
    shm = facts.shm
    lines = [f"/dev/shm: {size_text(shm.free_bytes)} free of {size_text(shm.size_bytes)} at the start"]
    lines.extend(f"{folder.path}: {folder.kind or 'unknown file system'} ({folder.medium})" for folder in facts.folders)
    return lines
