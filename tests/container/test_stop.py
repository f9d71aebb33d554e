"""docker stop reaches the trainer, which saves and says that it can go on."""

import math
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Start = Callable[..., object]
LONG = ("train", "--cfg", "yolov9-t", "--img", "64", "--epochs", "8", "--batch", "4", "--workers", "1")

GRACE_S = 30
"""What Kubernetes gives; three times that of `docker stop`."""
MOST_WAIT_S = 20.0
"""The stop comes at a random moment within so many seconds after the first line of the log; some jobs are done then."""
TRAINING_S = 5.0
"""About what is left of two jobs side by side once the first epoch of both is over."""
GRAPH = "/data/tiny.yaml"
FIRST_LINE = "decision +value"
EPOCHS = 30
JOBS = ("job-a", "job-b")


@dataclass(frozen=True)
class Ending:
    """How a job ended that was stopped."""

    exit_code: int
    log: str

    @property
    def epoch(self) -> int:
        """Epochs that were over."""
        return len(re.findall(rf"epoch \d+/{EPOCHS}:", self.log))

    @property
    def is_fine(self) -> bool:
        """Stopped on request, or done before it came."""
        expected = (0, 75) if "done in" in self.log else (75,)
        return self.exit_code in expected and "Traceback" not in self.log


@pytest.fixture
def options(data_dir: Path, runs_dir: Path) -> list[str]:
    return ["--volume", f"{data_dir}:/data:ro", "--volume", f"{runs_dir}:/runs"]


def test_p17_docker_stop_saves_in_time_and_the_run_goes_on(
    start: Start,
    run: Callable[..., str],
    stop: Callable[..., float],
    quiet: Callable,
    options: list[str],
    runs_dir: Path,
) -> None:
    container = start(*LONG, "--data", "/data/data.yaml", options=options)
    container.wait_for(r"epoch 1/8:")
    assert stop(container, grace_s=60) < 60
    assert container.wait() == 75
    quiet(container.log(), [r"WARNING SIGTERM", r"WARNING stopped in epoch"])
    assert (runs_dir / "train/exp/weights/last.pt").is_file()
    log = run("train", "--resume", "runs/train/exp/weights/last.pt", options=options)
    assert "epoch 8/8:" in log


def test_docker_stop_before_the_first_step_ends_the_container(start: Start, stop: Callable[..., float]) -> None:
    container = start("bash", "-c", "trap 'exit 9' TERM; echo up; while :; do read -rt 1 <> <(:) || :; done")
    container.wait_for("up")
    assert stop(container, grace_s=30) < 30
    assert container.wait() == 9


def test_with_docker_init_there_is_no_complaint(run: Callable[..., str]) -> None:
    assert run("bash", "-c", "echo fine", options=["--init"]) == "fine\n"


def epochs(run_dir: Path) -> list[int]:
    rows = (run_dir / "results.csv").read_text().splitlines()[1:]
    return [int(row.split(",")[0]) for row in rows]


def test_p17_a_stop_at_any_moment_ends_in_time_and_the_same_command_goes_on(
    start: Start,
    run: Callable[..., str],
    stop: Callable[..., float],
    options: list[str],
    runs_dir: Path,
    seed: int,
    record_property: Callable[[str, object], None],
) -> None:
    job = ("train", "--cfg", GRAPH, "--img", "64", "--epochs", EPOCHS, "--batch", "4", "--workers", "1")
    job += ("--data", "/data/data.yaml", "--name", "job", "--continue", "--noplots")
    container = start(*job, options=options)
    container.wait_for(FIRST_LINE)
    time.sleep(random.Random(seed).uniform(0, MOST_WAIT_S))
    took_s = stop(container, grace_s=GRACE_S)
    ending = Ending(container.wait(), container.log())
    record_property("stop", f"{ending.exit_code} after {took_s:.1f} s in epoch {ending.epoch}")
    assert took_s < GRACE_S
    assert ending.is_fine, container.log()
    run(*job, options=options)
    assert epochs(runs_dir / "train/job") == list(range(EPOCHS))


def stopping_s(docker: Callable, name: str, since: int) -> float:
    """Seconds from the first signal that the engine sent to a container until the container's end."""
    words = ("--filter", f"container={name}", "--filter", "event=kill", "--filter", "event=die")
    events = docker("events", "--since", since, "--until", math.ceil(time.time()), *words, "--format", "{{.TimeNano}}")
    times_ns = [int(line) for line in events.stdout.split()]
    return (times_ns[-1] - times_ns[0]) / 1e9 if times_ns else 0.0


def test_p17_p38_two_jobs_stopped_at_any_moment_end_in_time_and_up_finishes_both(
    compose_cpu: Callable[..., str],
    up_together: Callable[..., None],
    service: Callable[[str], Any],
    docker: Callable,
    runs_dir: Path,
    seed: int,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MODEL", GRAPH)
    monkeypatch.setenv("EPOCHS", str(EPOCHS))
    # Every other time both are past their start, which takes most of the time of so small a training.
    began, most_wait_s = ((FIRST_LINE, MOST_WAIT_S), (f"epoch 1/{EPOCHS}:", TRAINING_S))[seed % 2]
    up_together(*JOBS)
    for job in JOBS:
        service(job).wait_for(began)
    time.sleep(random.Random(seed).uniform(0, most_wait_s))
    since = int(time.time())
    compose_cpu("stop", "--timeout", str(GRACE_S))
    for job in JOBS:
        name, log = service(job).name, service(job).log()
        ending = Ending(service(job).wait(), log)
        took_s = stopping_s(docker, name, since)
        record_property(job, f"{ending.exit_code} after {took_s:.1f} s in epoch {ending.epoch}")
        assert took_s < GRACE_S
        assert ending.is_fine, log
    compose_cpu("up", "--no-build", "--detach")
    for job in JOBS:
        assert service(job).wait() == 0, service(job).log()
        assert epochs(runs_dir / "train" / job) == list(range(EPOCHS))
    assert {path.name for path in (runs_dir / "train").iterdir()} == set(JOBS)
