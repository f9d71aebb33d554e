"""`plan`: what a command would do here, without doing it."""

import json
from collections.abc import Sequence

from entrypoint.plan.folders import project_of
from entrypoint.prepare import plan_data, plan_job, prepare_request
from entrypoint.request import SETTINGS
from entrypoint.rundir import next_run_dir
from entrypoint.table import plan_table
from yolov9.logs import show_text


def run_plan(argv: Sequence[str]) -> int:
    """Prints the plan of `train`, or of the command that is named first; returns 0.

    Raises:
        UserError: the job could not start.
    """
    command, rest = ("train", list(argv))
    if rest and rest[0] in SETTINGS:
        command, rest = rest[0], rest[1:]
    request, run_dir = prepare_request(command, rest, report=True)
    facts, plan = plan_job(request)
    if run_dir is None:
        run_dir = next_run_dir(project_of(request), request.settings.name, exist_ok=request.settings.exist_ok)
    if request.report.json:
        show_text(json.dumps(plan_data(request, facts, plan, run_dir), indent=1, default=str))
    else:
        show_text(f"{plan_table(plan)}\n\nresults would go to {run_dir}")
    return 0
