"""Reads GPUs through PyTorch, in a child process: a CUDA context made here would stay in this process."""

import json
import subprocess
import sys

from entrypoint.host.gpu import Gpu, GpuFacts

TIMEOUT_S = 120
"""The first import of PyTorch from a cold disk takes tens of seconds."""
_PROGRAM = """
import json, os
# All GPUs in the order of NVML; what CUDA_VISIBLE_DEVICES hides is left out later, as with NVML.
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
import torch
found = []
for index in range(torch.cuda.device_count()):
    free, total = torch.cuda.mem_get_info(index)
    properties = torch.cuda.get_device_properties(index)
    found.append([index, properties.name, total, free, properties.major, properties.minor, str(properties.uuid)])
print(json.dumps(found))
"""


def read_torch(without: GpuFacts) -> GpuFacts:
    """Returns the GPUs that a real CUDA call reaches.

    Args:
        without: what NVML said; its driver version and problem are kept.
    """
    problem = without.problem or "NVML shows no GPU"
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        rows = json.loads(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 else []
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        rows = []
    devices = tuple(
        Gpu(
            index=index,
            uuid=uuid if uuid.startswith("GPU-") else f"GPU-{uuid}",
            name=name,
            total_bytes=total,
            free_bytes=free,
            capability=(major, minor),
        )
        for index, name, total, free, major, minor, uuid in rows
    )
    return GpuFacts(
        devices=devices,
        driver=without.driver,
        cuda=without.cuda,
        source="torch" if devices else "none",
        problem=problem,
    )
