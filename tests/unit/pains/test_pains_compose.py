"""P38: what the compose file says, read as YAML; tests/container asks Compose itself."""

from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[3]
TRAINERS = ("train", "job-a", "job-b")
SAVE_TIME_S = 30
"""A checkpoint of the largest model is written in less, also on a slow disk."""


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return dict(yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8"))["services"])


@pytest.mark.parametrize("name", [*TRAINERS, "mps"])
def test_p38_a_gpu_is_reserved_by_driver_capability_and_one_way_to_count(services: dict[str, Any], name: str) -> None:
    (device,) = services[name]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    assert len({"count", "device_ids"} & set(device)) == 1
    assert "runtime" not in services[name]


@pytest.mark.parametrize("name", TRAINERS)
def test_p38_a_job_has_shared_memory_limits_and_time_to_save(services: dict[str, Any], name: str) -> None:
    assert services[name]["shm_size"]
    assert services[name]["ulimits"]["memlock"]
    assert int(services[name]["stop_grace_period"].removesuffix("s")) > SAVE_TIME_S


def test_p38_two_jobs_have_names_and_seeds_of_their_own(services: dict[str, Any]) -> None:
    words = [services[job]["command"] for job in ("job-a", "job-b")]
    for flag in ("--name", "--seed"):
        assert len({command[command.index(flag) + 1] for command in words}) == 2
