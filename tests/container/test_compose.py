"""The compose files: valid, and their two jobs told apart."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

CPU_FILES = ("-f", "docker-compose.yml", "-f", "docker-compose.cpu.yml")
SAVE_TIME_S = 30
"""A checkpoint of the largest model is written in less, also on a slow disk."""
Compose = Callable[..., str]


@pytest.fixture
def services(compose: Compose) -> Callable[..., dict]:
    return lambda *words: json.loads(compose(*words, "--profile", "*", "config", "--format", "json"))["services"]


@pytest.mark.parametrize("files", [(), CPU_FILES])
def test_p38_the_file_is_valid(compose: Compose, files: tuple[str, ...]) -> None:
    assert compose(*files, "config", "--quiet") == ""


def test_up_starts_the_two_jobs_and_train_is_called_by_name(compose: Compose) -> None:
    assert compose("config", "--services").split() == ["job-a", "job-b"]
    assert set(compose("--profile", "*", "config", "--services").split()) == {"job-a", "job-b", "train"}


def test_p38_each_job_reserves_a_gpu_in_the_form_the_engine_wants(services: Callable[..., dict]) -> None:
    for name, service in services().items():
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert device["driver"] == "nvidia", name
        assert device["capabilities"] == ["gpu"], name
        assert len({"count", "device_ids"} & set(device)) == 1, name


def test_p38_each_job_has_shared_memory_limits_and_time_to_save(services: Callable[..., dict]) -> None:
    for name, service in services().items():
        assert int(service["shm_size"]) >= 1 << 30, name
        assert service["ulimits"]["memlock"] == -1, name
        minutes, seconds = service["stop_grace_period"].rstrip("s").split("m")
        assert 60 * int(minutes) + int(seconds) > SAVE_TIME_S, name
        assert "cpus" not in service, f"{name}: the engine refuses more CPUs than the machine has"


def test_p38_the_override_takes_the_gpu_away(services: Callable[..., dict]) -> None:
    assert all("deploy" not in service for service in services(*CPU_FILES).values())


def test_p38_the_two_jobs_have_different_names_and_seeds(services: Callable[..., dict]) -> None:
    jobs = services()
    assert jobs["job-a"]["command"] != jobs["job-b"]["command"]
    assert jobs["job-a"]["command"][:3] == ["train", "--name", "job-a"]
    assert jobs["job-b"]["command"][:3] == ["train", "--name", "job-b"]


def test_p38_two_jobs_train_to_the_end_on_a_machine_without_a_gpu(
    compose: Compose, docker: Callable, runs_dir: Path
) -> None:
    compose(*CPU_FILES, "up", "--no-build", "--detach")
    for job in ("job-a", "job-b"):
        container = compose(*CPU_FILES, "ps", "--all", "--quiet", job).strip()
        assert docker("wait", container, timeout_s=420).stdout.strip() == "0", compose(*CPU_FILES, "logs", job)
        assert (runs_dir / "train" / job / "weights/best.pt").is_file()
