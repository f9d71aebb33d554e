"""What running out of GPU memory looks like, how memory is given back, and what a user is told when nothing helps."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from yolov9.engine.gpu_memory import gigabytes
from yolov9.errors import ExitCode, UserError, first_line

OTHERS = "a larger --gpu-share, or end what else uses the GPU (nvidia-smi shows it)"
TRAIN_REMEDY = f"a smaller --img or --cfg, --checkpoint-activations, {OTHERS}; --resume goes on"
PREDICT_REMEDY = f"a smaller --img, {OTHERS}"
"""Where nothing is trained, these are all options that there are."""


class NoRoomError(UserError):
    """Not even the smallest piece of some work fits into the memory."""


ALWAYS_MEMORY = (
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "DEVICE_ALLOCATION_FAILED",
    "can't allocate memory",
    "not enough memory",
)
"""Words of CUDA, Triton, cuBLAS, cuDNN and the CPU allocator that mean nothing else."""
MEMORY_WHEN_FULL = (
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_INTERNAL_ERROR",
    "unable to find an engine",
    "Unable to find a valid cuDNN algorithm",
)
"""Handles and workspaces of libraries fail with these words when the card is full, and for other reasons when not."""
MOST_TRIES_OF_ONE = 3
"""One picture at a time is tried so often before it counts as too large: a neighbour may have taken memory briefly."""
FULL_BYTES = 256 << 20
"""With less than this free, a library's handle or workspace may not fit (cuBLAS alone asks for 32 MiB at a time)."""


def is_out_of_memory(error: BaseException) -> bool:
    """Tells whether an error means that memory is out, whoever says so; everything else is to be shown as it is."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    words = str(error)
    if any(word in words for word in ALWAYS_MEMORY):
        return True
    return any(word in words for word in MEMORY_WHEN_FULL) and _is_full()


def free_caches(device: torch.device) -> None:
    """Gives unused memory back to the driver; call it outside of an `except`, whose traceback holds frames."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


@contextmanager
def explained(device: torch.device, what: str = "this job", remedy: str = TRAIN_REMEDY) -> Iterator[None]:
    """Turns an error for want of memory that nobody could deal with into one that says what to lower.

    Args:
        device: where the work is done.
        what: the work, in words.
        remedy: what a user may lower.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        words = first_line(error)
    else:
        return
    raise no_room(words, device, what, remedy)


def no_room(words: str, device: torch.device, what: str, remedy: str = TRAIN_REMEDY) -> NoRoomError:
    """Returns the error for work that does not fit in its smallest form.

    Args:
        words: what the allocator said.
        device: where it did not fit.
        what: the work, in words.
        remedy: what a user may lower.
    """
    return NoRoomError(
        found=f"{what} does not fit into the memory: {words}{_held(device)}",
        needed="memory for the model and one picture at a time",
        remedy=remedy,
        exit_code=ExitCode.NO_GPU,
    )


def _held(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    free, total = torch.cuda.mem_get_info(device)
    held = gigabytes(torch.cuda.memory_reserved(device))
    return f"; {gigabytes(free)} of {gigabytes(total)} are free and {held} are held by this process"


def _is_full() -> bool:
    return torch.cuda.is_available() and torch.cuda.mem_get_info()[0] < FULL_BYTES
