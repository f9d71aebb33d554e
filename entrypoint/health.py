"""`health`: does the trainer of this container still run? Asked by Docker's HEALTHCHECK every half minute."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

STOPPED_STATES = {"T": "is stopped by a signal", "t": "is held by a debugger"}
"""Process states of proc(5) in which a trainer makes no progress."""
UNHEALTHY = 1
"""The exit code that Docker defines for it."""


@dataclass(frozen=True)
class TrainerProcess:
    """A process that runs a plan."""

    pid: int
    state: str
    """One letter as in proc(5)."""
    plan_file: str


def run_health(argv: Sequence[str]) -> int:
    """Prints one line; returns 0, or 1 when a trainer is there and does not run. No job at all is healthy."""
    parser = argparse.ArgumentParser(prog="health", description="Tells whether the trainer of this container runs.")
    parser.add_argument("--root", type=Path, default=Path("/"), help="folder with a proc tree to read")
    trainers = list(find_trainers(parser.parse_args(argv).root / "proc"))
    ill = [f"process {t.pid} {STOPPED_STATES[t.state]} ({t.plan_file})" for t in trainers if t.state in STOPPED_STATES]
    print("; ".join(ill) or "; ".join(f"{t.plan_file} runs" for t in trainers) or "no job runs")
    return UNHEALTHY if ill else 0


def find_trainers(proc: Path) -> Iterator[TrainerProcess]:
    """Yields the processes started as `python … -m yolov9 PLAN.json`; those that end meanwhile are passed over."""
    for folder in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            state = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            continue
        if "yolov9" in words and words[words.index("yolov9") - 1] == "-m":
            yield TrainerProcess(int(folder.name), state, words[-1])
