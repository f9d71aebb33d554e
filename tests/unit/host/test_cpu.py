"""CPU limits: affinity, cpusets and quotas of control groups of both versions."""

from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.host.cpu import count_cpu_list, read_cpu
from entrypoint.host.tree import open_tree

V2 = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cgroup.controllers": "cpu memory\n"}
V1_CONTAINER = {
    "proc/self/cgroup": "3:cpu,cpuacct:/docker/0123\n2:memory:/docker/0123\n",
    "proc/self/mountinfo": (
        "40 39 0:30 /docker/0123 /sys/fs/cgroup/cpu,cpuacct ro,nosuid - cgroup cgroup rw,cpu,cpuacct\n"
    ),
}
MakeTree = Callable[..., Path]


def usable(root: Path) -> float:
    return read_cpu(open_tree(root)).usable


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("200000 100000", 2), ("150000 100000", 1.5), ("50000 100000", 0.5), ("max 100000", 8), ("800000 50000", 8)],
)
def test_v2_quota(make_tree: MakeTree, quota: str, expected: float) -> None:
    assert usable(make_tree({**V2, "sys/fs/cgroup/cpu.max": quota}, {"cpu_count": 64, "affinity": 8})) == expected


@pytest.mark.parametrize(("quota", "expected"), [("200000", 2), ("-1", 8), ("150000", 1.5)])
def test_v1_quota_of_a_container_whose_host_path_does_not_exist_inside(
    make_tree: MakeTree, quota: str, expected: float
) -> None:
    files = {
        **V1_CONTAINER,
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": quota,
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
    }
    assert usable(make_tree(files, {"affinity": 8})) == expected


def test_a_group_of_the_same_name_as_a_missing_host_path_is_not_a_parent(make_tree: MakeTree) -> None:
    files = {
        "proc/self/cgroup": "3:cpu:/docker/0123\n",
        "sys/fs/cgroup/cpu/docker/cpu.cfs_quota_us": "100000",
        "sys/fs/cgroup/cpu/docker/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
    }
    assert usable(make_tree(files, {"affinity": 8})) == 8


@pytest.mark.parametrize("tight", ["", "/slice", "/slice/pod"])
def test_the_tightest_level_of_the_path_counts(make_tree: MakeTree, tight: str) -> None:
    files = {"proc/self/cgroup": "0::/slice/pod\n", "sys/fs/cgroup/cgroup.controllers": "cpu\n"}
    for level in ("", "/slice", "/slice/pod"):
        files[f"sys/fs/cgroup{level}/cpu.max"] = "300000 100000" if level == tight else "max 100000"
    facts = read_cpu(open_tree(make_tree(files, {"affinity": 16})))
    assert facts.usable == 3
    assert f"(/sys/fs/cgroup{tight})" in facts.source


def test_hybrid_machine_reads_the_controller_where_it_lives(make_tree: MakeTree) -> None:
    files = {
        "proc/self/cgroup": "1:cpu:/job\n0::/job\n",
        "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "250000",
        "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/unified/cgroup.controllers": "",
        "sys/fs/cgroup/unified/job/cgroup.controllers": "",
    }
    assert usable(make_tree(files, {"affinity": 16})) == 2.5


@pytest.mark.parametrize("text", ["", "nonsense", "100000", "0 100000", "-5 100000", "100000 0"])
def test_a_quota_that_makes_no_sense_is_no_limit_and_is_reported(make_tree: MakeTree, text: str) -> None:
    facts = read_cpu(open_tree(make_tree({**V2, "sys/fs/cgroup/cpu.max": text}, {"affinity": 4})))
    assert facts.usable == 4
    assert len(facts.unreadable) == 1


def test_cpuset_of_one(make_tree: MakeTree) -> None:
    files = {**V2, "sys/fs/cgroup/cpuset.cpus.effective": "3\n", "sys/devices/system/cpu/online": "0-63\n"}
    assert usable(make_tree(files)) == 1


def test_affinity_is_read_from_status_when_nothing_else_tells(make_tree: MakeTree) -> None:
    files = {"proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-2,8\n"}
    assert usable(make_tree(files)) == 4


def test_an_empty_tree_is_one_cpu_and_says_so(make_tree: MakeTree) -> None:
    facts = read_cpu(open_tree(make_tree({})))
    assert (facts.usable, facts.online, facts.source) == (1, None, "nothing readable")


@pytest.mark.parametrize(("text", "count"), [("0-3,8", 5), ("0", 1), ("", None), ("a-b", None), ("0-", None)])
def test_kernel_cpu_lists(text: str, count: int | None) -> None:
    assert count_cpu_list(text) == count


def test_this_machine_has_at_least_a_part_of_a_cpu() -> None:
    assert read_cpu(open_tree("/")).usable > 0
