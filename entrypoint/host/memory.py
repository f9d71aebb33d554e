"""Main memory that this process may use: the machine's and every limit on the control group path."""

from dataclasses import dataclass

from entrypoint.host.cgroup import Level, levels
from entrypoint.host.tree import Tree

NO_LIMIT_BYTES = 1 << 60
"""Version 1 writes "no limit" as the largest multiple of the page size below 2^63; nothing real comes near 2^60."""


@dataclass(frozen=True, kw_only=True)
class MemoryLimit:
    """Limit of one control group and what counts against it."""

    limit_bytes: int
    used_bytes: int
    """Charged memory without file pages that the kernel can drop at once; 0 when unknown."""
    source: str

    @property
    def free_bytes(self) -> int:
        """What may still be charged to the group."""
        return max(0, self.limit_bytes - self.used_bytes)


@dataclass(frozen=True, kw_only=True)
class MemoryFacts:
    """Memory of the machine and of the container, in bytes."""

    total_bytes: int | None
    host_available_bytes: int | None
    """What programs can get without swapping; None when unknown."""
    swap_bytes: int
    limits: tuple[MemoryLimit, ...]
    available_bytes: int | None
    """Smallest of the machine's available memory and what is free under each limit; None when nothing is known."""
    source: str
    """Which of them decides."""

    @property
    def limit_bytes(self) -> int | None:
        """Smallest limit of the control groups, or None."""
        return min((limit.limit_bytes for limit in self.limits), default=None)


@dataclass(frozen=True, kw_only=True)
class OomCounters:
    """What the kernel counted for this process's memory group."""

    kills: int | None
    """Processes killed for memory since the group was made."""
    peak_bytes: int | None
    limit_bytes: int | None


def read_memory(tree: Tree) -> MemoryFacts:
    """Reads the memory limits of a machine."""
    info = tree.table("proc/meminfo")
    total = info["MemTotal"] * 1024 if "MemTotal" in info else None
    host = _host_available(info)
    limits = tuple(limit for level in levels(tree, "memory") if (limit := _limit(tree, level, total)))
    choices = [(limit.free_bytes, limit.source) for limit in limits]
    if host is not None:
        choices.append((host, "available memory of the machine"))
    available, source = min(choices, default=(None, "unknown"))
    return MemoryFacts(
        total_bytes=total,
        host_available_bytes=host,
        swap_bytes=info.get("SwapTotal", 0) * 1024,
        limits=limits,
        available_bytes=available,
        source=source,
    )


def read_oom_counters(tree: Tree) -> OomCounters:
    """Reads the counters of the innermost group that has them, to explain a killed process."""
    kills, peak = None, None
    for level in levels(tree, "memory"):
        events, highest = (
            ("memory.events", "memory.peak")
            if level.version == 2
            else ("memory.oom_control", "memory.max_usage_in_bytes")
        )
        counted = tree.table(level.folder / events).get("oom_kill")
        kills = counted if kills is None else kills
        peak = tree.integer(level.folder / highest) if peak is None else peak
    return OomCounters(kills=kills, peak_bytes=peak, limit_bytes=read_memory(tree).limit_bytes)


def _host_available(info: dict[str, int]) -> int | None:
    """MemAvailable, or its usual stand-in on kernels before 3.14."""
    if "MemAvailable" in info:
        return info["MemAvailable"] * 1024
    if "MemFree" not in info:
        return None
    return (info["MemFree"] + info.get("Buffers", 0) + info.get("Cached", 0)) * 1024


def _limit(tree: Tree, level: Level, total: int | None) -> MemoryLimit | None:
    names: tuple[str, ...]
    if level.version == 2:
        names, usage, reclaimable = ("memory.max", "memory.high"), "memory.current", "inactive_file"
    else:
        names, usage, reclaimable = ("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"
    found = [(value, name) for name in names if (value := tree.integer(level.folder / name)) is not None]
    stat = tree.table(level.folder / "memory.stat")
    if level.version == 1 and "hierarchical_memory_limit" in stat:
        # A parent's limit shows here even when the parent's folder cannot be seen from inside the container.
        found.append((stat["hierarchical_memory_limit"], "hierarchical_memory_limit"))
    value, name = min(found, default=(NO_LIMIT_BYTES, ""))
    if value >= NO_LIMIT_BYTES or (total is not None and value >= total):
        return None
    used = max(0, (tree.integer(level.folder / usage) or 0) - stat.get(reclaimable, 0))
    return MemoryLimit(
        limit_bytes=value, used_bytes=used, source=f"cgroup v{level.version} {name} {value} ({level.name})"
    )
