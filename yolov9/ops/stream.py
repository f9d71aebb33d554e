"""Which stream kernels are launched on now."""

import torch


def current_stream(device: torch.device | None = None) -> int:
    """Number of the current stream of a device, None: of the current one; 0 where nothing has used a GPU yet."""
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # not annotated in torch
    if not started or (device is not None and device.type != "cuda"):
        return 0
    return int(torch.cuda.current_stream(device).cuda_stream)
