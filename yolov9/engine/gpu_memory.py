"""The memory of this process's GPU: the cap of `--gpu-share`, and what was used at most."""

import torch

from yolov9.config.gpu_share import OVERHEAD_BYTES, allocator_limit_bytes
from yolov9.errors import ExitCode, UserError
from yolov9.logs import LOG

BYTES_PER_GB = 1e9
LATE_BYTES = 512 << 20
"""Kernels and library handles are loaded when they are first used, after the free memory was read."""


def limit_allocator(device: torch.device, share: float | None) -> None:
    """Caps what PyTorch's allocator takes of a GPU; call it before the first tensor is there. Nothing on the CPU.

    CUDA's context and the code of libraries lie outside of the allocator, so they are taken off beforehand. What
    libraries allocate past PyTorch is not capped: MIG and MPS have hard limits.

    Args:
        device: of this process.
        share: of the GPU's whole memory; None or 1: no cap.

    Raises:
        UserError: the share does not even hold the context.
    """
    if device.type != "cuda" or share is None or share >= 1:
        return
    free, total = torch.cuda.mem_get_info(device)
    limit = allocator_limit_bytes(total, share)
    if not limit:
        raise UserError(
            found=f"--gpu-share {share:g} of {gigabytes(total)}",
            needed=f"more than the {gigabytes(OVERHEAD_BYTES)} that CUDA and its libraries take",
            remedy=f"--gpu-share {min(1.0, 2 * OVERHEAD_BYTES / total):.2g} or more",
            exit_code=ExitCode.NO_GPU,
        )
    torch.cuda.set_per_process_memory_fraction(limit / total, device)
    LOG.info(
        "GPU memory: at most %s for tensors, --gpu-share %g of %s without %s for CUDA and its libraries; %s are free",
        gigabytes(limit),
        share,
        gigabytes(total),
        gigabytes(OVERHEAD_BYTES),
        gigabytes(free),
    )


def save_allocator_memory() -> None:
    """Lets PyTorch's allocator grow and shrink its segments, which saves 10 to 13 % of a step's memory and takes 1 %
    more time (docs/measurements.md). Graphs that exist already keep the memory that they have."""
    # The name before PyTorch 2.9 warns in later versions; neither is documented, the variable of the same words is.
    newer = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    (newer or torch.cuda.memory._set_allocator_settings)("expandable_segments:True")


def memory_budget_bytes(device: torch.device, share: float | None) -> int:
    """Returns how much this process may hold of what is free now; neighbours count, their memory is not ours.

    Args:
        device: a GPU; what this process holds of it already counts as its own.
        share: of the GPU's whole memory; None: all of it.
    """
    free, total = torch.cuda.mem_get_info(device)
    own = torch.cuda.memory_reserved(device)
    return max(0, min(free + own - LATE_BYTES, allocator_limit_bytes(total, share or 1.0)))


def peak_text(device: torch.device) -> str:
    """Returns the most that was reserved from the driver, and how much of it tensors used; "" on the CPU."""
    if device.type != "cuda":
        return ""
    reserved, used = torch.cuda.max_memory_reserved(device), torch.cuda.max_memory_allocated(device)
    return f"{gigabytes(reserved)} ({gigabytes(used)} in tensors)"


def gigabytes(size_bytes: float) -> str:
    """Returns a size as people read it: `12.3 GB`."""
    return f"{size_bytes / BYTES_PER_GB:.1f} GB"
