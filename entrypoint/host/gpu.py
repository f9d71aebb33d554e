"""GPUs of the machine: through NVML, else through PyTorch in a child process, else from a fake root's facts.json."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from entrypoint.host.tree import Tree


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process that uses a GPU."""

    pid: int
    used_bytes: int | None
    """None when the driver does not say, which is usual inside a container."""
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU, or one MIG slice of a GPU."""

    index: int
    """Position in the driver's order (PCI bus); slices of one GPU share it."""
    uuid: str
    name: str
    total_bytes: int
    free_bytes: int
    """What the driver can give now; memory of neighbours is not in it."""
    capability: tuple[int, int] | None = None
    utilisation_percent: int | None = None
    processes: tuple[GpuProcess, ...] = ()
    is_mig: bool = False

    @property
    def used_bytes(self) -> int:
        """What others hold, including the driver's own reserve."""
        return max(0, self.total_bytes - self.free_bytes)


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """All GPUs that the driver shows to this process."""

    devices: tuple[Gpu, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    """Newest CUDA version the driver supports."""
    source: str = "none"
    """nvml, torch, facts.json or none."""
    problem: str | None = None
    """Why the source could not be read completely; None when all is well."""
    failed_indices: Mapping[int, str] = field(default_factory=dict)
    """GPUs that are there and do not answer, with the driver's words."""


def read_gpus(tree: Tree) -> GpuFacts:
    """Returns the GPUs; never raises, absence is a fact."""
    if any(key in tree.given for key in ("gpus", "nvml_error", "driver")):
        return _given(tree.given)
    if not tree.is_this_machine:
        return GpuFacts()
    from entrypoint.host.gpu_nvml import read_nvml

    facts = read_nvml()
    if facts.devices or not _has_device_file(tree):
        return facts
    from entrypoint.host.gpu_torch import read_torch

    return read_torch(facts)


def _has_device_file(tree: Tree) -> bool:
    """A GPU's device file without NVML: the driver's tool library was not passed in, yet CUDA may work."""
    return any(tree.path("dev").glob("nvidia[0-9]*"))


def _given(given: Mapping[str, Any]) -> GpuFacts:
    devices = tuple(_given_gpu(position, entry) for position, entry in enumerate(given.get("gpus") or []))
    return GpuFacts(
        devices=devices,
        driver=_text(given.get("driver")),
        cuda=_text(given.get("cuda")),
        source="facts.json" if devices else "none",
        problem=_text(given.get("nvml_error")),
    )


def _given_gpu(position: int, entry: Mapping[str, Any]) -> Gpu:
    total = int(entry["total"])
    capability = entry.get("capability")
    return Gpu(
        index=int(entry.get("index", position)),
        uuid=str(entry.get("uuid", f"GPU-{position:08d}")),
        name=str(entry.get("name", "GPU")),
        total_bytes=total,
        free_bytes=int(entry.get("free", total)),
        capability=(int(capability[0]), int(capability[1])) if capability else None,
        utilisation_percent=_number(entry.get("utilisation")),
        processes=tuple(
            GpuProcess(pid=int(p["pid"]), used_bytes=_number(p.get("used")), name=str(p.get("name", "")))
            for p in entry.get("processes", [])
        ),
        is_mig=bool(entry.get("mig", False)),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
