"""The compose files: valid, their jobs told apart, staggered, stopped, killed, and brought up again."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CPU_FILES = ("-f", "docker-compose.yml", "-f", "docker-compose.cpu.yml")
JOBS = ("job-a", "job-b")
TRAINERS = ("train", *JOBS)
ON_GPU = (*TRAINERS, "mps")
SAVE_TIME_S = 30
"""A checkpoint of the largest model is written in less, also on a slow disk."""
READ_CHECKPOINT = """
import sys
from pathlib import Path
from yolov9.engine.checkpoint import read_training_checkpoint
for path in sys.argv[1:]:
    print(read_training_checkpoint(Path(path))["training"]["progress"]["epoch"])
"""
NAMED_GPU = r"WARNING device \(!\)"
STOPPED = (r"WARNING SIGTERM", r"WARNING stopped in epoch")
Compose = Callable[..., str]
Service = Callable[[str], Any]
Services = Callable[..., dict[str, Any]]


@pytest.fixture
def services(compose: Compose) -> Services:
    return lambda *words: json.loads(compose(*words, "--profile", "*", "config", "--format", "json"))["services"]


def epochs(runs_dir: Path, job: str) -> list[int]:
    rows = (runs_dir / "train" / job / "results.csv").read_text().splitlines()[1:]
    return [int(row.split(",")[0]) for row in rows]


def until(
    docker: Callable, name: str, good: Callable[[dict[str, Any]], bool], timeout_s: float = 240
) -> dict[str, Any]:
    """Waits until what the engine knows of a container is as wanted, and returns it."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        state = dict(json.loads(docker("inspect", name).stdout)[0])
        if good(state):
            return state
        time.sleep(0.25)
    raise AssertionError(f"not so within {timeout_s} s: {state['State']}")


def has_ended_again(state: dict[str, Any]) -> bool:
    """The engine has started it once more, and it has ended; `docker wait` ends with the first end."""
    return bool(state["RestartCount"]) and state["State"]["Status"] == "exited"


@pytest.mark.parametrize("files", [(), CPU_FILES])
def test_p38_the_file_is_valid(compose: Compose, files: tuple[str, ...]) -> None:
    assert compose(*files, "config", "--quiet") == ""


def test_up_starts_the_two_jobs_and_the_rest_is_called_by_name(compose: Compose) -> None:
    assert set(compose("config", "--services").split()) == set(JOBS)
    everything = compose("--profile", "*", "config", "--services").split()
    assert set(everything) == {*ON_GPU, "tensorboard"}


def test_p38_each_job_reserves_a_gpu_in_the_form_the_engine_wants(services: Services) -> None:
    for name in ON_GPU:
        (device,) = services()[name]["deploy"]["resources"]["reservations"]["devices"]
        assert device["driver"] == "nvidia", name
        assert device["capabilities"] == ["gpu"], name
        assert len({"count", "device_ids"} & set(device)) == 1, name


def test_p38_each_job_has_shared_memory_limits_and_time_to_save(services: Services) -> None:
    for name in TRAINERS:
        service = services()[name]
        assert int(service["shm_size"]) >= 1 << 30, name
        assert service["ulimits"]["memlock"] == -1, name
        minutes, seconds = service["stop_grace_period"].rstrip("s").split("m")
        assert 60 * int(minutes) + int(seconds) > SAVE_TIME_S, name


def test_p38_no_limit_of_cpus_that_a_small_machine_refuses_stands_in_the_file(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any(float(services()[name].get("cpus", 0)) for name in TRAINERS)
    monkeypatch.setenv("CPUS", "1.5")
    assert all(float(services()[name]["cpus"]) == 1.5 for name in TRAINERS)


def test_p38_a_gpu_reaches_a_job_through_its_reservation(
    compose: Compose, gpu_options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpu_options, "there is a pretended GPU"
    monkeypatch.setenv("MEMLOCK", "65536")  # The engine of a test machine may not be allowed to raise it.
    plan = json.loads(compose("run", "--rm", "--no-deps", "--no-TTY", "job-a", "plan", "--json"))
    gpu = next(decision for decision in plan["decisions"] if decision["name"] == "gpu")
    assert gpu["value"].startswith("Fake")
    share = next(decision for decision in plan["decisions"] if decision["name"] == "gpu_share")
    assert (share["value"], share["source"]) == (0.5, "YOLOV9_GPU_SHARE=0.5")


def test_p38_the_override_takes_the_gpu_away(services: Services) -> None:
    assert all("deploy" not in service for service in services(*CPU_FILES).values())


def test_p38_the_two_jobs_have_different_names_and_seeds_and_half_of_the_gpu_each(services: Services) -> None:
    a, b = (services()[job] for job in JOBS)
    for job, service, seed in zip(JOBS, (a, b), "01", strict=True):
        assert service["command"] == ["train", "--continue", "--name", job, "--seed", seed]
        assert service["environment"]["YOLOV9_GPU_SHARE"] == "0.5"
        assert service["environment"]["YOLOV9_JOBS"] == "2"
    assert "YOLOV9_GPU_SHARE" not in services()["train"]["environment"]


def test_the_jobs_meet_the_mps_server_in_a_folder_of_their_own(services: Services) -> None:
    pipes = {
        name: [volume["source"] for volume in services()[name]["volumes"] if volume["target"] == "/mps"]
        for name in ON_GPU
    }
    assert set(map(tuple, pipes.values())) == {("mps",)}
    assert services()["mps"]["environment"]["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] is None, "not handed over as empty"
    for name in ON_GPU:
        assert services()[name]["environment"]["CUDA_MPS_PIPE_DIRECTORY"] == "/mps"
        assert services()[name]["user"] == services()["mps"]["user"], "a server has clients of one user"


def test_p22_p38_two_jobs_train_to_the_end_each_with_its_part_of_the_machine(
    compose_cpu: Compose, docker: Callable, service: Service, runs_dir: Path, quiet: Callable
) -> None:
    compose_cpu("up", "--no-build", "--detach")
    for job in JOBS:
        log = f"see `docker compose logs {job}`"
        assert service(job).wait() == 0, log
        log = compose_cpu("logs", "--no-log-prefix", job)
        quiet(log, [NAMED_GPU])
        assert re.search(r"workers +\d+ .* over 2 jobs", log)
        assert re.search(r"epoch 1/1: .*pictures/s", log), "each job says how fast it is"
        assert (runs_dir / "train" / job / "weights/best.pt").is_file()
    started = [json.loads(docker("inspect", service(job).name).stdout)[0]["State"]["StartedAt"] for job in JOBS]
    first_steps = docker("logs", "--timestamps", service("job-a").name).stderr.split(" INFO epoch 1/1:")[0].splitlines()
    assert started[0] < started[1]
    assert first_steps[-1].split()[0] < started[1], "b starts when a is past its first steps"


def test_p17_p38_stop_leaves_two_checkpoints_and_up_finishes_both(
    compose_cpu: Compose,
    up_together: Callable[..., None],
    docker: Callable,
    service: Service,
    runs_dir: Path,
    image: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EPOCHS", "1000")
    up_together(*JOBS)  # so that the second has no lead of the first to make up for
    for job in JOBS:
        service(job).wait_for("epoch 2/1000:")
    health = until(docker, service("job-a").name, lambda state: state["State"]["Health"]["Status"] == "healthy")
    assert "steps, the last sign of life" in health["State"]["Health"]["Log"][-1]["Output"]
    compose_cpu("stop")
    states = [json.loads(docker("inspect", service(job).name).stdout)[0]["State"] for job in JOBS]
    assert [state["ExitCode"] for state in states] == [75, 75]
    paths = [f"/runs/train/{job}/weights/last.pt" for job in JOBS]
    mount = ("--volume", f"{runs_dir}:/runs:ro")
    reached = docker("run", "--rm", *mount, image, "python", "-c", READ_CHECKPOINT, *paths).stdout.split()
    assert len(reached) == 2
    # Fewer epochs than at first, so that the test ends.
    last = max(int(epoch) for epoch in reached) + 2
    monkeypatch.setenv("EPOCHS", str(last))
    compose_cpu("up", "--no-build", "--detach")
    for job in JOBS:
        assert service(job).wait() == 0, job
        assert epochs(runs_dir, job) == list(range(last))
    assert {path.name for path in (runs_dir / "train").iterdir()} == set(JOBS)


def test_a_job_that_is_killed_is_started_again_and_goes_on(
    compose_cpu: Compose,
    docker: Callable,
    service: Service,
    runs_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EPOCHS", "12")
    compose_cpu("up", "--no-build", "--detach", "job-a")
    service("job-a").wait_for("epoch 3/12:")
    docker("exec", service("job-a").name, "pkill", "-KILL", "--full", "m yolov9")
    state = until(docker, service("job-a").name, has_ended_again)
    log = compose_cpu("logs", "job-a")
    assert state["State"]["ExitCode"] == 0, log
    assert state["RestartCount"] == 1
    assert re.search(r"resuming .* in epoch (?!1 )\d", log)
    assert epochs(runs_dir, "job-a") == list(range(12))


def test_tensorboard_shows_all_runs(
    compose_cpu: Compose, docker: Callable, service: Service, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in JOBS:
        (runs_dir / "train" / job).mkdir(parents=True)
        (runs_dir / "train" / job / "events.out.tfevents.1.x").touch()
    monkeypatch.setenv("TENSORBOARD_PORT", "127.0.0.1:0")
    compose_cpu("--profile", "tensorboard", "up", "--no-build", "--detach", "tensorboard")
    ask = """
import json, time, urllib.request
for _ in range(240):
    try:
        print(json.load(urllib.request.urlopen("http://127.0.0.1:6006/data/runs")))
        break
    except OSError:
        time.sleep(0.25)
"""
    shown = docker("exec", service("tensorboard").name, "python", "-c", ask).stdout
    assert all(f"train/{job}" in shown for job in JOBS), shown
