"""From words to a plan: the request with its inputs, the machine, what is decided, and the file that holds it."""

import json
import os
from collections.abc import Sequence
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
from entrypoint.request import JobRequest, make_request
from entrypoint.resume import find_run, interrupted_run, resumed_options, with_decisions_of_run, with_pictures_of_run
from entrypoint.rundir import not_writable
from yolov9.config.settings import TrainSettings
from yolov9.engine.atomic_file import write_text_atomically
from yolov9.engine.plan_record import PLAN_FILE
from yolov9.read_watch import READ_TIMEOUT_S, ReadWatch, reading


def prepare_request(command: str, argv: Sequence[str], *, report: bool = False) -> tuple[JobRequest, Path | None]:
    """Returns the merged request with its inputs found, and the folder of the run that goes on, if any."""
    request = make_request(command, argv, report=report)
    check_request(request)
    with read_watch(request), reading(project_of(request)):
        wanted = getattr(request.settings, "resume", "")
        if not wanted and getattr(request.settings, "continue_run", False):
            wanted = interrupted_run(Path(project_of(request)) / request.settings.name)
            request = replace(request, settings=replace(request.settings, exist_ok=True))
        if not wanted:
            return resolve_inputs(request), None
        run_dir, checkpoint = find_run(wanted, Path(project_of(request)))
        request = make_request(command, argv, report=report, resumed=resumed_options(run_dir))
        request = with_pictures_of_run(with_decisions_of_run(request, run_dir), run_dir)
        if isinstance(request.settings, TrainSettings):
            request = replace(request, settings=replace(request.settings, resume=str(checkpoint)))
        return resolve_inputs(request), run_dir


def plan_job(request: JobRequest, *, clean: bool = False) -> tuple[HostFacts, Plan]:
    """Reads the machine and makes the plan.

    Args:
        request: what is asked for.
        clean: remove what killed jobs left behind, so that its space counts as free.
    """
    with read_watch(request):
        folders = folders_to_read(request, os.getuid())
        data = getattr(request.settings, "data", "")
        if data:
            folders.append(Path(data).parent)
        facts = read_facts(request.report.root, folders)
        check_processes(facts)  # Before threads are started to look at the data set.
        if data and getattr(request.settings, "stage", "off") != "off":
            # Takes a quarter of a second, and is not always needed.
            from entrypoint.staging.survey import survey_staging

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


def read_watch(request: JobRequest) -> ReadWatch:
    """Returns what notices that a file or mount of a job no longer answers."""
    return ReadWatch(getattr(request.settings, "worker_timeout_s", READ_TIMEOUT_S))
