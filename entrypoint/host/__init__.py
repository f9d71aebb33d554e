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
from entrypoint.host.tree import open_tree
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
    """
    tree = open_tree(root)
    return HostFacts(
        cpu=read_cpu(tree),
        memory=read_memory(tree),
        shm=read_shm(tree),
        gpu=read_gpus(tree),
        limits=read_limits(tree),
        wheel=read_wheel(tree),
        folders=tuple(read_folder(tree, folder) for folder in folders),
    )
