"""Stands in for `python -m yolov9 PLAN.json`, many times: imports the trainer once, and forks a process per plan.

Reads one JSON object per line from standard input: {"plan": path, "variables": {name: value}}. Each child is a process
group of its own, writes its log to trainer.log beside its plan, and is a real process that can be killed. Answers with
one JSON object per line: {"pid": …} once it runs, {"status": …} (exit code, or minus the signal) when it has ended.

PyTorch has no threads yet when a child is forked, so the child trains as a process that was started afresh.
"""

import importlib
import json
import os
import signal
import sys
from pathlib import Path

from yolov9.__main__ import main

USED_BY_A_TRAINING = ("yolov9.engine.trainer", "tensorboard.summary.writer.record_writer", "torch._dynamo")
"""Takes 4 s of CPU time to import; optimizers import the last one."""


def train(plan: Path, variables: dict[str, str]) -> None:
    """Becomes the trainer; does not return."""
    os.setpgid(0, 0)
    log = os.open(plan.with_name("trainer.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor in (0, 1, 2):
        os.dup2(log if descriptor else os.open(os.devnull, os.O_RDONLY), descriptor)
    os.environ.update(variables)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    exit_code = main([str(plan)])
    sys.stderr.flush()
    os._exit(exit_code)


def tell(**facts: int) -> None:
    """Answers the test."""
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    for name in USED_BY_A_TRAINING:
        importlib.import_module(name)
    tell(threads=len(list(Path("/proc/self/task").iterdir())))
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if not pid:
            train(Path(order["plan"]), order["variables"])
        tell(pid=pid)
        tell(status=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
