"""`python -m yolov9 PLAN.json`: does what a plan says; started by the entrypoint, once per rank.

A plan is a JSON object with `command` (train, val, detect or bench), `settings` (fields of the command's settings),
`run_dir`, `request` (what the user typed: name -> value and source), which is only needed to resume, and `data_copy`
(data.yaml of a copy of the data set on faster storage), when there is one.
"""

import gc
import json
import os
import signal
import sys
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from yolov9.config.environment import read_environment
from yolov9.config.settings import DetectSettings, RunSettings, TrainSettings, ValSettings
from yolov9.engine.plan_record import RESUMED
from yolov9.engine.stop import ignore_stops
from yolov9.errors import ExitCode, UserError
from yolov9.logs import LOG, setup_logging

SettingsType = TypeVar("SettingsType", bound=RunSettings)


def main(arguments: list[str]) -> int:
    """Runs the plan and returns the exit code of the process."""
    setup_logging()
    try:
        if len(arguments) != 1:
            raise UserError(
                found=f"{len(arguments)} arguments",
                needed="the path of one plan.json",
                remedy="python -m entrypoint train … makes a plan and starts it",
            )
        plan = _read_plan(Path(arguments[0]))
        setup_logging(quiet=bool(plan["settings"].get("quiet", False)))
        return int(_run(plan))
    except UserError as error:
        for line in str(error).splitlines():
            LOG.error("%s", line)
        if error.exit_code == ExitCode.GPU_FAILED:
            os._exit(error.exit_code)  # Destructors would call the card, which may not answer.
        return int(error.exit_code)
    except Exception:
        LOG.exception("internal error; please report it with the lines below")
        return int(ExitCode.INTERNAL)


def _run(plan: dict[str, Any]) -> int:
    command, values, run_dir = plan["command"], plan["settings"], Path(plan["run_dir"])
    if command == "train":
        from yolov9.engine.trainer import Trainer

        # Modules stay to the end. A capture collects garbage first, and would look through all of them each time.
        gc.collect()
        gc.freeze()
        copy = str(plan.get("data_copy", ""))
        return Trainer(_settings(TrainSettings, values), run_dir, _given(plan), data_copy=copy).run()
    if command == "val":
        from yolov9.engine import val_command

        return val_command.run(_settings(ValSettings, values), run_dir)
    if command == "detect":
        from yolov9.engine import detect

        return detect.run(_settings(DetectSettings, values), run_dir)
    if command == "bench":
        from yolov9.engine import bench

        return bench.run(_settings(TrainSettings, values), bench.BenchPlan(**plan["bench"]), run_dir)
    raise UserError(
        found=f"command {command!r} in the plan", needed="train, val, detect or bench", remedy="make the plan anew"
    )


def _read_plan(path: Path) -> dict[str, Any]:
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _bad_plan(path, str(error)) from None
    missing = [name for name in ("command", "settings", "run_dir") if not isinstance(plan, dict) or name not in plan]
    if missing:
        raise _bad_plan(path, f"no {', '.join(missing)} in it")
    return dict(plan)


def _bad_plan(path: Path, what: str) -> UserError:
    return UserError(
        found=f"plan {path}: {what}",
        needed="a plan.json that the entrypoint wrote",
        remedy="python -m entrypoint train … makes a plan and starts it",
    )


def _settings(kind: type[SettingsType], values: dict[str, Any]) -> SettingsType:
    """Makes the settings of a command; names that belong to the plan alone are left out."""
    known = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in known})


def _given(plan: dict[str, Any]) -> Collection[str] | None:
    request = plan.get("request")
    if not isinstance(request, dict):
        return None
    return [name for name, entry in request.items() if not str(entry.get("source", "")).startswith(RESUMED)]


def leave(status: int) -> NoReturn:
    """Ends the process with this exit code, when everything is saved and closed."""
    ignore_stops()
    if read_environment().world_size > 1:
        # A rank of a finished training has been seen to abort (SIGABRT) while its interpreter was taken down beside
        # threads of the collective library.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


if __name__ == "__main__":
    # Ctrl-C where nothing is to be saved yet ends the process without a traceback; a training takes the signal over.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    leave(main(sys.argv[1:]))
