"""/dev/shm: size, free space and how it is mounted."""

import os
import re
from dataclasses import dataclass

from entrypoint.host.mounts import read_mounts
from entrypoint.host.tree import Tree

SHM_DIR = "/dev/shm"
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True, kw_only=True)
class ShmFacts:
    """Shared memory file system; sizes in bytes, None when unknown."""

    present: bool
    """False with `--ipc=none`."""
    size_bytes: int | None = None
    free_bytes: int | None = None
    writable: bool | None = None


def read_shm(tree: Tree) -> ShmFacts:
    """Reads /dev/shm of this machine, or what a fake root says about it (`shm` in facts.json, else the mount table)."""
    mount = next((m for m in reversed(read_mounts(tree)) if m.point == SHM_DIR), None)
    read_only = mount is not None and "ro" in mount.options
    if "shm" in tree.given:
        given = tree.given["shm"]
        if given is None:
            return ShmFacts(present=False)
        size = int(given["size"])
        return ShmFacts(
            present=True, size_bytes=size, free_bytes=int(given.get("free", size)), writable=given.get("writable", True)
        )
    if tree.is_this_machine:
        return _measured(read_only)
    if mount is None:
        return ShmFacts(present=False)
    return ShmFacts(present=True, size_bytes=_size(mount.option("size")), writable=not read_only)


def _measured(read_only: bool) -> ShmFacts:
    try:
        stat = os.statvfs(SHM_DIR)
    except OSError:
        return ShmFacts(present=False)
    return ShmFacts(
        present=True,
        size_bytes=stat.f_blocks * stat.f_frsize,
        free_bytes=stat.f_bavail * stat.f_frsize,
        writable=not read_only and os.access(SHM_DIR, os.W_OK),
    )


def _size(text: str | None) -> int | None:
    match = re.fullmatch(r"(\d+)([kmg]?)", (text or "").lower())
    return int(match.group(1)) * _UNITS[match.group(2)] if match else None
