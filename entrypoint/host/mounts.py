"""Mount table of this process: `proc/self/mountinfo`, as proc(5) describes it."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from entrypoint.host.tree import Tree


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One line of the mount table."""

    point: str
    """Where it is mounted."""
    root: str
    """Which folder of the file system is seen there; not "/" for bind mounts."""
    kind: str
    """File system type: ext4, tmpfs, overlay, nfs4, cgroup2 …"""
    device: str
    """`major:minor` of the block device, `0:N` for file systems without one."""
    source: str
    """Device, server path or a free word."""
    options: frozenset[str]
    """Options of the mount and of the file system together."""

    def option(self, name: str) -> str | None:
        """Returns the value of `name=value`, or None."""
        return next((text.partition("=")[2] for text in self.options if text.startswith(f"{name}=")), None)


def read_mounts(tree: Tree) -> tuple[Mount, ...]:
    """Returns the mount table, later mounts last; empty when it cannot be read."""
    lines = (tree.text("proc/self/mountinfo") or "").splitlines()
    return tuple(mount for line in lines if (mount := _parse(line)) is not None)


def mount_of(path: str, mounts: tuple[Mount, ...]) -> Mount | None:
    """Returns the mount that a path lies on: the longest mount point above it, the latest one of equal length."""
    best: Mount | None = None
    for mount in mounts:
        covers = PurePosixPath(path).is_relative_to(mount.point)
        if covers and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def _parse(line: str) -> Mount | None:
    left, dash, right = line.partition(" - ")
    words, tail = left.split(" "), right.split(" ")
    if not dash or len(words) < 6 or len(tail) < 3:
        return None
    return Mount(
        point=_unescape(words[4]),
        root=_unescape(words[3]),
        kind=tail[0],
        device=words[2],
        source=_unescape(tail[1]),
        options=frozenset(words[5].split(",")) | frozenset(tail[2].split(",")),
    )


def _unescape(text: str) -> str:
    """Spaces, tabs, newlines and backslashes are written as octal numbers in the table."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)
