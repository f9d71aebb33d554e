"""Finds the control groups that bind this process: v1, v2 and both at once, at every level that can be seen."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from entrypoint.host.mounts import Mount, read_mounts
from entrypoint.host.tree import Tree

CGROUP_DIR = "/sys/fs/cgroup"
VERSION_2_MARK = "cgroup.controllers"
"""A file that every folder of a version 2 hierarchy has."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """One control group on the way from this process up to the top that can be seen."""

    folder: Path
    """Where its files are, under the tree's root."""
    version: int
    """1 or 2: decides how its files are named."""
    name: str
    """Folder as the machine names it, for messages."""


@dataclass(frozen=True)
class _Hierarchy:
    mount_point: str
    mount_root: str
    member: str
    version: int


def levels(tree: Tree, controller: str) -> tuple[Level, ...]:
    """Returns the groups that may limit a resource, innermost first.

    Args:
        tree: the machine.
        controller: cpu, cpuset, memory or pids.

    In a version 1 container `/proc/self/cgroup` names a path of the host that does not exist inside; then the top of
    the mount is this process's own group. Parents of such a path that exist by coincidence are not its parents.
    """
    found: list[Level] = []
    for hierarchy in _hierarchies(tree, controller):
        found.extend(_walk(tree, hierarchy))
    return tuple(found)


def _hierarchies(tree: Tree, controller: str) -> Iterable[_Hierarchy]:
    members = _memberships(tree)
    mounts = [mount for mount in read_mounts(tree) if mount.kind in ("cgroup", "cgroup2")]
    v1 = next((m for m in mounts if m.kind == "cgroup" and controller in m.options), None)
    point = v1.point if v1 else _v1_folder(tree, controller)
    if point is not None:
        yield _Hierarchy(point, v1.root if v1 else "/", members.get(controller, "/"), 1)
    v2 = _v2_mount(tree, mounts)
    if v2 is not None:
        yield _Hierarchy(v2[0], v2[1], members.get("", "/"), 2)


def _memberships(tree: Tree) -> dict[str, str]:
    """Controller -> group path; the key "" is the version 2 group."""
    members: dict[str, str] = {}
    for line in (tree.text("proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        names, colon, path = rest.partition(":")
        if colon:
            members.update(dict.fromkeys(names.split(","), path))
    return members


def _v1_folder(tree: Tree, controller: str) -> str | None:
    """Folder of a version 1 controller when the mount table does not tell; `cpu,cpuacct` holds both."""
    try:
        names = sorted(entry.name for entry in tree.path(CGROUP_DIR).iterdir())
    except OSError:
        return None
    if tree.path(f"{CGROUP_DIR}/{VERSION_2_MARK}").exists():
        return None
    return next((f"{CGROUP_DIR}/{name}" for name in names if controller in name.split(",")), None)


def _v2_mount(tree: Tree, mounts: list[Mount]) -> tuple[str, str] | None:
    mounted = next((mount for mount in mounts if mount.kind == "cgroup2"), None)
    if mounted is not None:
        return mounted.point, mounted.root
    for point in (CGROUP_DIR, f"{CGROUP_DIR}/unified"):
        files = (VERSION_2_MARK, "cpu.max", "memory.max")
        if any(tree.path(f"{point}/{name}").exists() for name in files):
            return point, "/"
    return None


def _walk(tree: Tree, hierarchy: _Hierarchy) -> list[Level]:
    top = Path(hierarchy.mount_point)
    leaf = top / _below(hierarchy.member, hierarchy.mount_root)
    if ".." in leaf.parts or not tree.path(str(leaf)).is_dir():
        leaf = top
    found = []
    for folder in (leaf, *leaf.parents):
        found.append(Level(folder=tree.path(str(folder)), version=hierarchy.version, name=str(folder)))
        if folder == top:
            break
    return found


def _below(member: str, mount_root: str) -> str:
    """Path of the group below the folder that is mounted."""
    path = Path(member)
    if mount_root != "/" and path.is_relative_to(mount_root):
        path = path.relative_to(mount_root)
    return str(path).lstrip("/")
