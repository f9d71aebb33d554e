"""CPUs that this process may use: affinity, cpusets and quotas at every level of the control groups."""

import os
from dataclasses import dataclass

from entrypoint.host.cgroup import Level, levels
from entrypoint.host.tree import Tree


@dataclass(frozen=True, kw_only=True)
class CpuLimit:
    """One thing that bounds the number of CPUs."""

    cpus: float
    """CPUs it allows; fractions are possible for quotas."""
    source: str
    """Where it was read, with the values found."""


@dataclass(frozen=True, kw_only=True)
class CpuFacts:
    """CPUs of the machine and what bounds their use."""

    online: int | None
    """CPUs of the machine; None when unknown."""
    limits: tuple[CpuLimit, ...]
    """Everything that was found, in the order of reading."""
    usable: float
    """Smallest of all limits; at least a little above 0; 1 when nothing could be read."""
    source: str
    """Which limit decides."""
    unreadable: tuple[str, ...] = ()
    """Files that were there and made no sense; they count as no limit."""


def read_cpu(tree: Tree) -> CpuFacts:
    """Reads the CPU limits of a machine."""
    unreadable: list[str] = []
    limits = [*_online(tree), *_affinity(tree)]
    for level in levels(tree, "cpuset"):
        limits.extend(_cpuset(tree, level))
    for level in levels(tree, "cpu"):
        limits.extend(_quota(tree, level, unreadable))
    online = next((int(limit.cpus) for limit in limits if limit.source == "CPUs of the machine"), None)
    tightest = min(limits, key=lambda limit: limit.cpus, default=CpuLimit(cpus=1, source="nothing readable"))
    return CpuFacts(
        online=online,
        limits=tuple(limits),
        usable=tightest.cpus,
        source=tightest.source,
        unreadable=tuple(unreadable),
    )


def count_cpu_list(text: str) -> int | None:
    """Counts a kernel CPU list such as `0-3,8`; None when it is empty or malformed."""
    count = 0
    for part in text.strip().split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            return None
        count += int(high) - int(low) + 1 if dash else 1
    return count if count > 0 else None


def _online(tree: Tree) -> list[CpuLimit]:
    count = tree.given.get("cpu_count")
    if count is None:
        count = count_cpu_list(tree.text("sys/devices/system/cpu/online") or "")
    if count is None and tree.is_this_machine:
        count = os.cpu_count()
    return [CpuLimit(cpus=int(count), source="CPUs of the machine")] if count else []


def _affinity(tree: Tree) -> list[CpuLimit]:
    given = tree.given.get("affinity")
    if given is not None:
        count: int | None = len(given) if isinstance(given, list) else int(given)
    elif tree.is_this_machine and hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        status = (tree.text("proc/self/status") or "").splitlines()
        allowed = next((line for line in status if line.startswith("Cpus_allowed_list:")), "")
        count = count_cpu_list(allowed.partition(":")[2])
    return [CpuLimit(cpus=count, source="affinity of this process")] if count else []


def _cpuset(tree: Tree, level: Level) -> list[CpuLimit]:
    """An empty list means "as the parent" in version 2."""
    names = ("cpuset.cpus.effective", "cpuset.cpus") if level.version == 2 else ("cpuset.effective_cpus", "cpuset.cpus")
    for name in names:
        text = tree.text(level.folder / name)
        count = count_cpu_list(text) if text else None
        if text and count:
            return [CpuLimit(cpus=count, source=f"cgroup v{level.version} {name} {text.strip()} ({level.name})")]
    return []


def _quota(tree: Tree, level: Level, unreadable: list[str]) -> list[CpuLimit]:
    if level.version == 2:
        name = "cpu.max"
        text = tree.text(level.folder / name)
        words = text.split() if text else []
    else:
        name = "cpu.cfs_quota_us"
        text = tree.text(level.folder / name)
        words = [*(text or "").split(), *(tree.text(level.folder / "cpu.cfs_period_us") or "").split()]
    if text is None or words[:1] in (["max"], ["-1"]):
        return []
    if len(words) != 2 or not all(word.isdigit() and int(word) > 0 for word in words):
        unreadable.append(f"{level.name}/{name}: {' '.join(words)[:40]!r}")
        return []
    quota, period = int(words[0]), int(words[1])
    return [
        CpuLimit(cpus=quota / period, source=f"cgroup v{level.version} {name} {quota}/{period} ({level.name})"),
    ]
