"""/dev/shm, limits of the process, and folders."""

from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.host import read_facts
from entrypoint.host.limits import read_limits
from entrypoint.host.mounts import read_mounts
from entrypoint.host.shm import read_shm
from entrypoint.host.storage import read_folder
from entrypoint.host.tree import open_tree

MIB = 1 << 20
SHM_64M = "50 40 0:60 / /dev/shm rw,nosuid,noexec - tmpfs shm rw,size=65536k\n"
MakeTree = Callable[..., Path]


def test_p01_dockers_default_shm_from_the_mount_table(make_tree: MakeTree) -> None:
    facts = read_shm(open_tree(make_tree({"proc/self/mountinfo": SHM_64M})))
    assert (facts.present, facts.size_bytes, facts.free_bytes, facts.writable) == (True, 64 * MIB, None, True)


def test_free_space_of_shm_is_told_apart_from_its_size(make_tree: MakeTree) -> None:
    facts = read_shm(open_tree(make_tree({}, {"shm": {"size": 1024 * MIB, "free": 3 * MIB}})))
    assert (facts.size_bytes, facts.free_bytes) == (1024 * MIB, 3 * MIB)


@pytest.mark.parametrize("given", [{"shm": None}, {}])
def test_without_shm(make_tree: MakeTree, given: dict[str, object]) -> None:
    assert not read_shm(open_tree(make_tree({}, given))).present


def test_limits_of_the_process_and_of_its_group(make_tree: MakeTree) -> None:
    files = {
        "proc/self/limits": "Limit   Soft Limit  Hard Limit  Units\nMax processes  9000  9000  processes\n"
        "Max open files  1024  4096  files\nMax locked memory  unlimited  unlimited  bytes\n",
        "proc/self/status": "Uid:\t12345\t12345\t12345\t12345\nGid:\t100\t100\t100\t100\n",
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/cgroup.controllers": "pids\n",
        "sys/fs/cgroup/pids.max": "50\n",
    }
    limits = read_limits(open_tree(make_tree(files)))
    assert (limits.open_files, limits.locked_bytes, limits.processes) == (1024, None, 50)
    assert (limits.uid, limits.gid) == (12345, 100)


@pytest.mark.parametrize(
    ("kind", "rotational", "medium"),
    [
        ("nfs4", None, "network"),
        ("tmpfs", None, "memory"),
        ("ext4", "0", "solid-state disk"),
        ("ext4", "1", "rotating or virtual disk"),
        ("overlay", None, "unknown"),
    ],
)
def test_what_a_folder_lies_on(make_tree: MakeTree, kind: str, rotational: str | None, medium: str) -> None:
    files = {"proc/self/mountinfo": f"1 0 8:1 / / rw - ext4 a rw\n2 1 8:2 / /data rw - {kind} b rw\n", "data/x": ""}
    if rotational is not None:
        files["sys/dev/block/8:2/queue/rotational"] = rotational
    folder = read_folder(open_tree(make_tree(files)), "/data/set/images")
    assert (folder.existing, folder.kind, folder.medium) == ("/data", kind, medium)


def test_a_folder_behind_a_link_lies_where_the_link_leads(tmp_path: Path) -> None:
    (tmp_path / "runs").symlink_to("/proc/self")
    folder = read_folder(open_tree(), tmp_path / "runs" / "fd")
    assert (folder.path, folder.kind) == (str(tmp_path / "runs" / "fd"), "proc")


def test_names_with_spaces_in_the_mount_table(make_tree: MakeTree) -> None:
    root = make_tree({"proc/self/mountinfo": "1 0 8:1 / /my\\040data rw - ext4 /dev/sda rw\n"})
    assert read_mounts(open_tree(root))[0].point == "/my data"


@pytest.mark.parametrize("text", ["", "\x00\xff garbage", "1 2 3\n- - -\n", "a b c d e f - \n"])
def test_garbage_in_every_file_is_unknown_and_never_an_error(make_tree: MakeTree, text: str) -> None:
    names = ("cgroup", "mountinfo", "limits", "status")
    files = {f"proc/self/{name}": text for name in names}
    groups = {f"sys/fs/cgroup/{name}": text for name in ("cpu.max", "memory.max", "pids.max", "memory.stat")}
    facts = read_facts(make_tree({**files, **groups, "proc/meminfo": text, "sys/devices/system/cpu/online": text}))
    assert (facts.cpu.usable, facts.memory.available_bytes, facts.limits.processes) == (1, None, None)


def test_this_machine_is_readable() -> None:
    facts = read_facts("/", ["."])
    assert facts.cpu.online
    assert facts.memory.total_bytes
    assert facts.folders[0].free_bytes
