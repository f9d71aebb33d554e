"""Facts about the machine, read once and frozen. Unreadable means unknown, never an error."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from entrypoint.host.cpu import CpuFacts, read_cpu
from entrypoint.host.gpu import Gpu, GpuFacts, read_gpus
from entrypoint.host.limits import LimitFacts, read_limits
from entrypoint.host.memory import MemoryFacts, read_memory
from entrypoint.host.shm import ShmFacts, read_shm
from entrypoint.host.storage import FolderFacts, read_folder
from entrypoint.host.tree import GIVEN_FILE, Tree, bad_given, open_tree
from entrypoint.host.wheel import WheelFacts, read_wheel

__all__ = [
    "CpuFacts",
    "FolderFacts",
    "Gpu",
    "GpuFacts",
    "HostFacts",
    "LimitFacts",
    "MemoryFacts",
    "ShmFacts",
    "WheelFacts",
    "read_facts",
]


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """Everything the plan may know about the machine."""

    cpu: CpuFacts
    memory: MemoryFacts
    shm: ShmFacts
    gpu: GpuFacts
    limits: LimitFacts
    wheel: WheelFacts
    folders: tuple[FolderFacts, ...] = ()


def read_facts(root: str | Path = "/", folders: Sequence[str | Path] = ()) -> HostFacts:
    """Reads this machine, or one on paper.

    Args:
        root: "/" or a folder with files as the kernel names them (`proc/self/cgroup`, `sys/fs/cgroup/…`) and a
            `facts.json` for affinity, CPU count, /dev/shm, GPUs, driver and wheel.
        folders: folders of the job to look at as well.

    Raises:
        UserError: the root folder or its `facts.json` cannot be read.
    """
    tree = open_tree(root)
    try:
        return _read_tree(tree, folders)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        if not tree.given:
            raise
        problem = f"a value of the wrong kind ({type(error).__name__}: {error})"
        raise bad_given(tree.path(GIVEN_FILE), problem) from error


def _read_tree(tree: Tree, folders: Sequence[str | Path]) -> HostFacts:
    return HostFacts(
        cpu=read_cpu(tree),
        memory=read_memory(tree),
        shm=read_shm(tree),
        gpu=read_gpus(tree),
        limits=read_limits(tree),
        wheel=read_wheel(tree),
        folders=tuple(read_folder(tree, folder) for folder in folders),
    )
