"""Which GPUs CUDA would show to this job, in its order."""

from entrypoint.host.gpu import Gpu

NONE_VISIBLE = frozenset({"", "-1", "void", "none", "NoDevFiles"})
"""Values of CUDA_VISIBLE_DEVICES and of the container runtime that hide every GPU."""


def visible_gpus(devices: tuple[Gpu, ...], visible_devices: str | None) -> tuple[Gpu, ...]:
    """Returns GPUs in the order CUDA numbers them (with CUDA_DEVICE_ORDER=PCI_BUS_ID).

    Args:
        devices: what the driver shows.
        visible_devices: CUDA_VISIBLE_DEVICES: numbers, or beginnings of UUIDs. As CUDA does, the list ends at the
            first entry that names nothing.
    """
    if visible_devices is None or visible_devices.strip() == "all":
        return devices
    if visible_devices.strip() in NONE_VISIBLE:
        return ()
    found: list[Gpu] = []
    for word in visible_devices.split(","):
        gpu = find_gpu(devices, word.strip())
        if gpu is None:
            break
        found.append(gpu)
    return tuple(found)


def find_gpu(devices: tuple[Gpu, ...], word: str) -> Gpu | None:
    """Returns a GPU by its number or by the beginning of its UUID; a number never means a MIG slice."""
    if word.isdigit():
        return next((gpu for gpu in devices if gpu.index == int(word) and not gpu.is_mig), None)
    if not word.startswith(("GPU-", "MIG-")):
        return None
    return next((gpu for gpu in devices if gpu.uuid.startswith(word)), None)
