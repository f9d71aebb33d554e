"""The limit of processes and threads: loader processes give way, then the job is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.host import HostFacts, read_facts
from entrypoint.plan import make_plan
from entrypoint.plan.processes import FEWEST, check_processes
from entrypoint.request import make_request
from yolov9.errors import UserError

V2 = {"proc/self/cgroup": "0::/box\n", "sys/fs/cgroup/cgroup.controllers": "cpu pids\n"}


@pytest.fixture
def facts_of(make_tree: Callable[..., Path]) -> Callable[[str], HostFacts]:
    wheel = {"torch": "2.14.1+cu130", "cuda": "13.0"}
    return lambda limit: read_facts(
        make_tree({**V2, "sys/fs/cgroup/pids.max": limit}, {"affinity": 32, "wheel": wheel})
    )


def test_few_processes_take_loader_processes_away_and_say_so(facts_of: Callable[[str], HostFacts]) -> None:
    request = make_request("train", ["--workers", "16", "--device", "cpu"], variables={"OMP_NUM_THREADS": "2"})
    decision = make_plan(facts_of("40"), request)["workers"]
    assert decision.value == 10
    assert decision.degraded
    assert "limit of processes 40" in decision.source
    assert make_plan(facts_of("max"), request).value("workers") == 16


def test_too_few_for_a_trainer_are_refused_with_the_option_to_raise_them(facts_of: Callable[[str], HostFacts]) -> None:
    with pytest.raises(UserError, match="--pids-limit") as caught:
        check_processes(facts_of(str(FEWEST - 1)))
    assert caught.value.exit_code == 2
    check_processes(facts_of(str(FEWEST)))


def test_validation_has_one_loader(facts_of: Callable[[str], HostFacts]) -> None:
    request = make_request("val", ["--workers", "16", "--device", "cpu"], variables={"OMP_NUM_THREADS": "2"})
    assert make_plan(facts_of("33"), request).value("workers") == 13
