"""Reads GPUs through NVML (`pynvml` of nvidia-ml-py). Every call may fail on its own; what fails is unknown."""

from collections.abc import Callable
from typing import Any

from entrypoint.host.gpu import Gpu, GpuFacts, GpuProcess


def read_nvml() -> GpuFacts:
    """Returns what NVML shows; without library or driver an empty result that says why."""
    try:
        import pynvml
    except ImportError:
        return GpuFacts(problem="the Python module pynvml is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return GpuFacts(problem=f"NVML: {error}")
    try:
        return _read(pynvml)
    finally:
        _try(pynvml, pynvml.nvmlShutdown)


def _read(nvml: Any) -> GpuFacts:
    driver = _try(nvml, nvml.nvmlSystemGetDriverVersion)
    cuda = _try(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2)
    devices: list[Gpu] = []
    failed: dict[int, str] = {}
    for index in range(_try(nvml, nvml.nvmlDeviceGetCount) or 0):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            devices.extend(_slices(nvml, index, handle) or [_device(nvml, index, handle, is_mig=False)])
        except nvml.NVMLError as error:
            failed[index] = str(error)
    return GpuFacts(
        devices=tuple(devices),
        driver=_text(driver),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        source="nvml" if devices else "none",
        problem="; ".join(f"GPU {index}: {words}" for index, words in failed.items()) or None,
        failed_indices=failed,
    )


def _device(nvml: Any, index: int, handle: Any, *, is_mig: bool, parent: Any = None) -> Gpu:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    capability = _try(nvml, nvml.nvmlDeviceGetCudaComputeCapability, parent or handle)
    utilisation = None if is_mig else _try(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    return Gpu(
        index=index,
        uuid=_text(_try(nvml, nvml.nvmlDeviceGetUUID, handle)) or f"index {index}",
        name=_text(_try(nvml, nvml.nvmlDeviceGetName, handle)) or "unknown GPU",
        total_bytes=int(memory.total),
        free_bytes=int(memory.free),
        capability=(int(capability[0]), int(capability[1])) if capability else None,
        utilisation_percent=int(utilisation.gpu) if utilisation else None,
        processes=_processes(nvml, handle),
        is_mig=is_mig,
    )


def _slices(nvml: Any, index: int, handle: Any) -> list[Gpu]:
    """MIG slices of a GPU; such a GPU cannot be used as a whole."""
    mode = _try(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if not mode or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return []
    slices = []
    for position in range(_try(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        part = _try(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, position)
        if part is not None:
            slices.append(_device(nvml, index, part, is_mig=True, parent=handle))
    return slices


def _processes(nvml: Any, handle: Any) -> tuple[GpuProcess, ...]:
    found = _try(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
    return tuple(
        GpuProcess(
            pid=int(process.pid),
            used_bytes=None if process.usedGpuMemory is None else int(process.usedGpuMemory),
            name=_text(_try(nvml, nvml.nvmlSystemGetProcessName, process.pid)) or "",
        )
        for process in found
    )


def _try(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """Result of an NVML call, or None when this driver, card or container does not answer it."""
    try:
        return call(*arguments)
    except (nvml.NVMLError, UnicodeDecodeError):
        return None


def _text(value: Any) -> str | None:
    """Old versions of the module return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
