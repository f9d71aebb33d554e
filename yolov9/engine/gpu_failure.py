"""What the failure of a GPU looks like, and what the user is told: nothing on the card can be read any more."""

from collections.abc import Iterator
from contextlib import contextmanager

from yolov9.errors import ExitCode, UserError, first_line

WORDS = (
    "CUDA error",
    "CUDA driver error",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "NCCL Error",
    "NCCL error",
)
"""How PyTorch reports that a call to the card failed; errors for want of memory are told apart before."""
A_BUG = "device-side assert"
"""A kernel that was given wrong numbers: that is a mistake of a program, and its traceback is needed."""


class GpuFailedError(UserError):
    """The card or its driver failed. Clean-up that touches the card may hang, so the process ends without it."""


def is_gpu_failure(error: BaseException) -> bool:
    """Tells whether the card, its driver or the connection between cards failed."""
    words = str(error)
    return isinstance(error, RuntimeError) and A_BUG not in words and any(word in words for word in WORDS)


@contextmanager
def gpu_failure_explained() -> Iterator[None]:
    """Turns the failure of a GPU into an error that says how to go on; what the host holds is saved by then.

    Raises:
        GpuFailedError: a call to the card failed inside this context.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_gpu_failure(error):
            raise
        words = first_line(error)
    else:
        return
    raise GpuFailedError(
        found=f"the GPU failed: {words}",
        needed="a GPU that works; the weights on it are lost, the last checkpoint is complete",
        remedy="train --resume; when it happens again: nvidia-smi, and dmesg on the host (Xid errors name the cause)",
        exit_code=ExitCode.GPU_FAILED,
    )
