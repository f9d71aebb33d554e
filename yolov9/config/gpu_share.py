"""How much memory of a GPU a job may take; plain arithmetic, shared by the plan and the trainer."""

OVERHEAD_BYTES = 1 << 30
"""CUDA context (0.3 to 0.6 GiB), code of libraries and their workspaces outside of what PyTorch counts."""


def allocator_limit_bytes(total_bytes: int, share: float) -> int:
    """Returns what PyTorch's allocator may hold, so that a job with all it needs besides stays within its share.

    Args:
        total_bytes: memory of the GPU.
        share: above 0, at most 1.
    """
    return max(0, int(total_bytes * share) - OVERHEAD_BYTES)
