"""docker stop reaches the trainer, which saves and says that it can go on."""

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Start = Callable[..., object]
LONG = ("train", "--cfg", "yolov9-t", "--img", "64", "--epochs", "8", "--batch", "4", "--workers", "1")

GRACE_S = 30
"""What Kubernetes gives; three times that of `docker stop`."""
MOST_WAIT_S = 6.0
"""The stop comes at a random moment within so many seconds after the trainer began to read the data."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One random moment for each ten trainings that are killed without a container; at least two."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(max(2, metafunc.config.getoption("--chaos-runs") // 10)))


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


def test_p17_a_stop_at_any_moment_ends_in_time_and_the_same_command_goes_on(
    start: Start,
    run: Callable[..., str],
    stop: Callable[..., float],
    root: Path,
    options: list[str],
    data_dir: Path,
    runs_dir: Path,
    seed: int,
) -> None:
    shutil.copy(root / "tests/unit/engine/tiny-graph.yaml", data_dir / "tiny.yaml")
    job = ("train", "--cfg", "/data/tiny.yaml", "--img", "64", "--epochs", "30", "--batch", "4", "--workers", "1")
    job += ("--data", "/data/data.yaml", "--name", "job", "--continue", "--noplots")
    container = start(*job, options=options)
    container.wait_for("val: .* pictures found")
    time.sleep(random.Random(seed).uniform(0, MOST_WAIT_S))
    assert stop(container, grace_s=GRACE_S) < GRACE_S
    assert container.wait() == 75, container.log()
    assert "Traceback" not in container.log()
    run(*job, options=options)
    rows = (runs_dir / "train/job/results.csv").read_text().splitlines()[1:]
    assert [int(row.split(",")[0]) for row in rows] == list(range(30))
