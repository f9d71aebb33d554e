"""Limits on processes and files, and who this process is."""

import os
from dataclasses import dataclass

from entrypoint.host.cgroup import levels
from entrypoint.host.tree import Tree


@dataclass(frozen=True, kw_only=True)
class LimitFacts:
    """None means unknown or unlimited, which need the same treatment."""

    open_files: int | None
    """Soft limit of open files of a process."""
    locked_bytes: int | None
    """Soft limit of page-locked memory, in bytes."""
    processes: int | None
    """Smallest limit of processes and threads: of the user and of the control groups."""
    uid: int | None
    gid: int | None


def read_limits(tree: Tree) -> LimitFacts:
    """Reads the limits of this process."""
    counts = [tree.integer(level.folder / "pids.max") for level in levels(tree, "pids")]
    counts.append(_soft(tree, "Max processes"))
    known = [count for count in counts if count is not None]
    status = tree.table("proc/self/status")
    return LimitFacts(
        open_files=_soft(tree, "Max open files"),
        locked_bytes=_soft(tree, "Max locked memory"),
        processes=min(known, default=None),
        uid=status.get("Uid", os.getuid() if tree.is_this_machine else None),
        gid=status.get("Gid", os.getgid() if tree.is_this_machine else None),
    )


def _soft(tree: Tree, name: str) -> int | None:
    """Soft limit from a line such as `Max open files   1024   4096   files`."""
    for line in (tree.text("proc/self/limits") or "").splitlines():
        if line.startswith(name):
            words = line.removeprefix(name).split()
            return int(words[0]) if words and words[0].isdigit() else None
    return None
