"""Memory limits: the machine's available memory and every limit on the control group path."""

from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.host.memory import MemoryFacts, read_memory, read_oom_counters
from entrypoint.host.tree import open_tree

GIB = 1 << 30
HOST = "MemTotal: 263000000 kB\nMemFree: 1000 kB\nMemAvailable: 209715200 kB\nSwapTotal: 8388608 kB\n"
V2 = {"proc/meminfo": HOST, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cgroup.controllers": "memory\n"}
MakeTree = Callable[..., Path]


def read(root: Path) -> MemoryFacts:
    return read_memory(open_tree(root))


def test_p07_v2_limit_minus_use_not_the_host(make_tree: MakeTree) -> None:
    files = {"sys/fs/cgroup/memory.max": "2147483648", "sys/fs/cgroup/memory.current": "1500000000"}
    assert read(make_tree({**V2, **files})).available_bytes == 2147483648 - 1500000000


def test_p07_v1_names(make_tree: MakeTree) -> None:
    files = {
        "proc/meminfo": HOST,
        "proc/self/cgroup": "4:memory:/docker/0123\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "1500000000",
    }
    assert read(make_tree(files)).available_bytes == 647483648


@pytest.mark.parametrize(
    "files",
    [
        {"sys/fs/cgroup/memory.max": "max", "sys/fs/cgroup/memory.current": "1500000000"},
        {"sys/fs/cgroup/memory.max": "9223372036854771712"},
        {},
    ],
)
def test_p07_no_limit_is_the_host(make_tree: MakeTree, files: dict[str, str]) -> None:
    facts = read(make_tree({**V2, **files}))
    assert (facts.available_bytes, facts.limit_bytes) == (209715200 * 1024, None)


def test_limit_on_the_parent_counts(make_tree: MakeTree) -> None:
    files = {
        "proc/meminfo": HOST,
        "proc/self/cgroup": "0::/pod/box\n",
        "sys/fs/cgroup/pod/memory.max": str(4 * GIB),
        "sys/fs/cgroup/pod/memory.current": str(3 * GIB),
        "sys/fs/cgroup/pod/box/memory.max": "max",
        "sys/fs/cgroup/cgroup.controllers": "memory",
    }
    facts = read(make_tree(files))
    assert facts.available_bytes == GIB
    assert "/sys/fs/cgroup/pod)" in facts.source


def test_v1_limit_of_an_unseen_parent_shows_in_the_statistics(make_tree: MakeTree) -> None:
    files = {
        "proc/meminfo": HOST,
        "proc/self/cgroup": "4:memory:/a/b\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "sys/fs/cgroup/memory/memory.stat": f"hierarchical_memory_limit {8 * GIB}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": str(GIB),
    }
    assert read(make_tree(files)).available_bytes == 7 * GIB


def test_file_pages_that_the_kernel_can_drop_are_free(make_tree: MakeTree) -> None:
    files = {
        "sys/fs/cgroup/memory.max": str(4 * GIB),
        "sys/fs/cgroup/memory.current": str(3 * GIB),
        "sys/fs/cgroup/memory.stat": f"anon {GIB}\ninactive_file {2 * GIB}\n",
    }
    assert read(make_tree({**V2, **files})).available_bytes == 3 * GIB


def test_use_above_the_limit_leaves_nothing_not_less(make_tree: MakeTree) -> None:
    files = {"sys/fs/cgroup/memory.max": str(GIB), "sys/fs/cgroup/memory.current": str(2 * GIB)}
    assert read(make_tree({**V2, **files})).available_bytes == 0


def test_old_kernels_without_memavailable(make_tree: MakeTree) -> None:
    root = make_tree({"proc/meminfo": "MemTotal: 1000 kB\nMemFree: 100 kB\nBuffers: 20 kB\nCached: 300 kB\n"})
    assert read(root).available_bytes == 420 * 1024


def test_nothing_readable_is_unknown(make_tree: MakeTree) -> None:
    facts = read(make_tree({}))
    assert (facts.available_bytes, facts.total_bytes, facts.source) == (None, None, "unknown")


def test_kernel_counters_of_killed_processes(make_tree: MakeTree) -> None:
    files = {
        "sys/fs/cgroup/memory.max": str(GIB),
        "sys/fs/cgroup/memory.events": "low 0\noom 3\noom_kill 2\n",
        "sys/fs/cgroup/memory.peak": str(GIB),
    }
    counters = read_oom_counters(open_tree(make_tree({**V2, **files})))
    assert (counters.kills, counters.peak_bytes, counters.limit_bytes) == (2, GIB, GIB)


def test_kernel_counters_of_version_1(make_tree: MakeTree) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/\n",
        "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
        "sys/fs/cgroup/memory/memory.max_usage_in_bytes": "12345",
    }
    counters = read_oom_counters(open_tree(make_tree(files)))
    assert (counters.kills, counters.peak_bytes) == (5, 12345)
