"""The process that does what a plan says."""

import sys
from pathlib import Path

from entrypoint.host import HostFacts
from entrypoint.plan import Plan
from entrypoint.supervise import Ending, explain, supervise
from entrypoint.units import size_text
from yolov9.config.environment import read_environment

CODE_DIR = Path(__file__).parents[1]
"""Folder that holds the packages; on the path of children, whatever the working folder holds."""


def run_trainer(plan_file: Path, facts: HostFacts, plan: Plan) -> Ending:
    """Runs the trainer under supervision; how it ended is explained in the log unless it said so itself."""
    # PYTHONSAFEPATH: folders such as `data` in the working folder hide no module of ours.
    variables = {**plan.environment, "PYTHONPATH": _python_path(), "PYTHONSAFEPATH": "1"}
    ending = supervise(trainer_command(plan_file, plan), variables, plan.environment_defaults)
    explain(ending, suspects=_suspects(facts))
    return ending


def trainer_command(plan_file: Path, plan: Plan) -> list[str]:
    """Returns the trainer's command line: one process, or one per rank."""
    trainer = [sys.executable, "-m", "yolov9", str(plan_file)]
    ranks = plan.value("ranks")
    return trainer if ranks in (None, 1) else [sys.executable, "-m", "entrypoint.ranks", str(ranks), *trainer]


def _python_path() -> str:
    former = read_environment().python_path
    return f"{CODE_DIR}:{former}" if former else str(CODE_DIR)


def _suspects(facts: HostFacts) -> list[str]:
    shm = facts.shm
    lines = [f"/dev/shm: {size_text(shm.free_bytes)} free of {size_text(shm.size_bytes)} at the start"]
    lines.extend(f"{folder.path}: {folder.kind or 'unknown file system'} ({folder.medium})" for folder in facts.folders)
    return lines
