"""Folders that a job uses: what they lie on, free space, and whether this process may write there."""

import os
from dataclasses import dataclass
from pathlib import Path

from entrypoint.host.mounts import Mount, mount_of, read_mounts
from entrypoint.host.tree import Tree
from yolov9.read_watch import reading

NETWORK_KINDS = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "lustre", "glusterfs", "beegfs"})
"""File systems that answer over a network; virtual machines show host folders through 9p."""
MEMORY_KINDS = frozenset({"tmpfs", "ramfs", "devtmpfs"})
MEMORY, NETWORK, SOLID_STATE, ROTATING = "memory", "network", "solid-state disk", "rotating or virtual disk"
"""Media; virtual machines call their disks rotating, whatever they are."""
FAST_MEDIA = frozenset({MEMORY, SOLID_STATE})
SLOW_MEDIA = frozenset({NETWORK, ROTATING})


@dataclass(frozen=True, kw_only=True)
class FolderFacts:
    """One folder; None means unknown."""

    path: str
    """Folder asked about, absolute."""
    existing: str
    """The folder itself, or its nearest parent that exists."""
    kind: str | None
    """File system type."""
    medium: str
    """One of the fast or slow media, or "unknown"."""
    free_bytes: int | None
    writable: bool | None
    read_only_mount: bool | None
    owner_uid: int | None
    mode: int | None
    """Permission bits of `existing`."""


def read_folder(tree: Tree, path: str | Path) -> FolderFacts:
    """Reads one folder of the machine; it need not exist."""
    wanted = Path(path).absolute()
    with reading(wanted):
        return _read_folder(tree, wanted)


def _read_folder(tree: Tree, wanted: Path) -> FolderFacts:
    existing = next((folder for folder in (wanted, *wanted.parents) if tree.path(str(folder)).exists()), Path("/"))
    # A link lies on one mount and leads to another; the machine on paper has no links.
    mount = mount_of(os.path.realpath(existing) if tree.is_this_machine else str(existing), read_mounts(tree))
    real = tree.path(str(existing))
    free, writable, owner, mode = None, None, None, None
    try:
        status = real.stat()
        owner, mode = status.st_uid, status.st_mode & 0o7777
        if tree.is_this_machine:
            space = os.statvfs(real)
            free = space.f_bavail * space.f_frsize
            writable = os.access(real, os.W_OK | os.X_OK)
    except OSError:
        pass
    return FolderFacts(
        path=str(wanted),
        existing=str(existing),
        kind=mount.kind if mount else None,
        medium=_medium(tree, mount),
        free_bytes=free,
        writable=writable,
        read_only_mount="ro" in mount.options if mount else None,
        owner_uid=owner,
        mode=mode,
    )


def _medium(tree: Tree, mount: Mount | None) -> str:
    if mount is None:
        return "unknown"
    if mount.kind in MEMORY_KINDS:
        return MEMORY
    if mount.kind in NETWORK_KINDS or mount.kind.startswith("nfs"):
        return NETWORK
    device = f"sys/dev/block/{mount.device}"
    # A partition has no queue of its own; its disk, one folder up, has.
    rotating = tree.integer(f"{device}/queue/rotational")
    rotating = tree.integer(f"{device}/../queue/rotational") if rotating is None else rotating
    return {0: SOLID_STATE, 1: ROTATING}.get(-1 if rotating is None else rotating, "unknown")
