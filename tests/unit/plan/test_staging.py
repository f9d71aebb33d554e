"""When the data set is copied, where to, and why not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from entrypoint.host import FolderFacts, HostFacts, read_facts
from entrypoint.plan import Plan, make_plan
from entrypoint.request import make_request
from entrypoint.staging.facts import StageSurvey, StageTarget
from yolov9.errors import UserError

GIB = 1 << 30
MIB = 1 << 20
MakeTree = Callable[..., Path]


def folder(path: str, medium: str, *, free: int | None = None, writable: bool = True) -> FolderFacts:
    return FolderFacts(
        path=path,
        existing=path,
        kind={"memory": "tmpfs", "network": "nfs4"}.get(medium, "ext4"),
        medium=medium,
        free_bytes=free,
        writable=writable,
        read_only_mount=False,
        owner_uid=0,
        mode=0o755,
    )


def place(path: str = "/dev/shm", medium: str = "memory", free: int | None = 16 * GIB, **more: Any) -> StageTarget:
    return StageTarget(folder=folder(path, medium, free=free), free_bytes=free, free_files=None, **more)


def survey(
    *targets: StageTarget, size: int = 300 * MIB, medium: str = "network", speed: float | None = None
) -> StageSurvey:
    return StageSurvey(
        sources=(folder("/data/images", medium),),
        files=1000,
        size_bytes=size,
        footprint_bytes=size + 5 * MIB,
        read_bytes_s=speed,
        targets=targets,
    )


@pytest.fixture
def plan(make_tree: MakeTree) -> Callable[..., Plan]:
    def make(measured: StageSurvey | None, argv: str = "", memory_mib: int = 32 << 10, **given: Any) -> Plan:
        size = f"MemTotal: {memory_mib << 10} kB\nMemAvailable: {memory_mib << 10} kB\n"
        facts: HostFacts = read_facts(
            make_tree({"proc/meminfo": size}, {"affinity": 2, "shm": {"size": 16 * GIB}, **given})
        )
        words = f"--data x.yaml --cfg yolov9-t --img 64 --batch 1 {argv}".split()
        request = replace(make_request("train", words, variables={}), model="yolov9-t", staging=measured)
        return make_plan(facts, request)

    return make


MakePlan = Callable[..., Plan]


def staged_bytes(plan: Plan, resource: str) -> int:
    budget = next(budget for budget in plan.budgets if budget.resource == resource)
    return sum(need.size_bytes for need in budget.needs if need.what == "staged copy")


def test_a_network_mount_is_copied_to_shared_memory_and_charged_to_both_budgets(plan: MakePlan) -> None:
    made = plan(survey(place()))
    assert made.value("stage") == "/dev/shm"
    assert staged_bytes(made, "memory") == staged_bytes(made, "/dev/shm") == 305 * MIB


def test_a_copy_on_a_disk_takes_no_memory(plan: MakePlan) -> None:
    made = plan(survey(place("/ssd", "solid-state disk")))
    assert made.value("stage") == "/ssd"
    assert staged_bytes(made, "memory") == 0


def test_p08_a_target_with_too_little_space_is_refused_with_the_numbers(plan: MakePlan) -> None:
    made = plan(survey(place(free=200 * MIB)), "--stage /dev/shm")
    assert made.value("stage") == "off"
    assert made["stage"].degraded
    assert "305 MiB needed, 200 MiB free" in made["stage"].reason


def test_p08_a_memory_limit_counts_whatever_the_size_of_the_target(plan: MakePlan) -> None:
    made = plan(survey(place(free=10 * GIB)), memory_mib=1200)
    assert made.value("stage") == "off"
    assert "of memory are left beside the job" in made["stage"].reason
    assert plan(survey(place(free=10 * GIB)), memory_mib=1800).value("stage") == "/dev/shm"


def test_p08_some_of_shared_memory_stays_free(plan: MakePlan) -> None:
    assert plan(survey(place(free=368 * MIB))).value("stage") == "off"
    assert plan(survey(place(free=370 * MIB))).value("stage") == "/dev/shm"


def test_p08_what_the_exchange_between_gpus_needs_of_shared_memory_stays_free(plan: MakePlan) -> None:
    card = {"name": "NVIDIA A10G", "total": 24 * GIB, "free": 23 * GIB, "capability": [8, 6]}
    both = {"gpus": [card, {**card, "index": 1}], "driver": "580.65", "wheel": {"torch": "2.14.1", "cuda": "13.0"}}
    argv = "--device 0,1 --batch 2 --gpu-share 1"
    assert plan(survey(place(free=370 * MIB)), argv, **both).value("stage") == "off"
    assert plan(survey(place(free=434 * MIB)), argv, **both).value("stage") == "/dev/shm"


def test_a_complete_copy_that_is_there_needs_no_space(plan: MakePlan) -> None:
    made = plan(survey(place(free=0, holds_copy=True)))
    assert made.value("stage") == "/dev/shm"
    assert staged_bytes(made, "memory") == 0


def test_the_next_place_is_taken_when_the_first_is_too_small(plan: MakePlan) -> None:
    made = plan(survey(place(free=MIB), place("/ssd", "solid-state disk")))
    assert made.value("stage") == "/ssd"


@pytest.mark.parametrize(
    ("measured", "argv", "words"),
    [
        (None, "--stage off", "asked for"),
        (survey(place(), medium="solid-state disk"), "", "fast storage"),
        (survey(place(), medium="memory"), "", "fast storage"),
        (survey(place()), "--epochs 2", "2 epochs"),
        (survey(place()), "--cache disk", "--cache disk"),
        (survey(place(), size=MIB), "", "kernel keeps"),
        (survey(place(), medium="unknown"), "", "unknown"),
        (survey(place(), medium="unknown", speed=500e6), "", "measured"),
        (survey(place("/tmp", "rotating or virtual disk")), "", "not known to be faster"),
        (survey(place(free=None)), "", "free space unknown"),
        (survey(StageTarget(folder=folder("/f", "memory"), free_bytes=GIB, free_files=10)), "", "1000 files needed"),
        (survey(place(problem="a part of the data set")), "", "a part of the data set"),
        (replace(survey(), problem="x is a pipe"), "", "x is a pipe"),
    ],
)
def test_why_there_is_no_copy(plan: MakePlan, measured: StageSurvey | None, argv: str, words: str) -> None:
    decision = plan(measured, argv)["stage"]
    assert decision.value == "off"
    assert words in decision.reason
    assert not decision.degraded


def test_an_unknown_mount_that_reads_slowly_is_copied(plan: MakePlan) -> None:
    assert plan(survey(place(), medium="unknown", speed=20e6)).value("stage") == "/dev/shm"


def test_a_place_that_is_asked_for_is_used_even_if_it_does_not_pay(plan: MakePlan) -> None:
    slow = survey(place("/disk", "rotating or virtual disk"), medium="solid-state disk", size=MIB)
    assert plan(slow, "--stage /disk --epochs 1").value("stage") == "/disk"


def test_strict_stops_where_a_copy_was_asked_for_and_does_not_fit(plan: MakePlan) -> None:
    with pytest.raises(UserError, match="stage = off"):
        plan(survey(place(free=MIB)), "--stage /dev/shm --strict")
