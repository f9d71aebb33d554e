"""Whether this project's kernels run on the machine at hand; where they do not, plain operations do their work.

Triton may lack, or have nothing to build its driver's part with (a C compiler, Python.h), no room for what it compiles,
or no idea of the card. Without a look at the start each of them would end a run in its first batch.
"""

from functools import cache

import torch

from yolov9.engine.gpu_failure import is_gpu_failure
from yolov9.engine.out_of_memory import is_out_of_memory
from yolov9.errors import first_line
from yolov9.logs import LOG
from yolov9.ops.column_sums import add_column_sums
from yolov9.ops.plain import give_up_kernels, triton_is_installed

CHANNELS = 64
SIDE = 16
"""Pixels; the sums are small whole numbers, which half precision holds exactly."""


@cache
def check_kernels(device: torch.device) -> None:
    """Tries a small kernel; where it fails, every operation is a plain one from now on, and a line says why.

    Loaders are to be started before: this may be what starts CUDA.

    Args:
        device: on which the kernels would run; nothing is tried on a CPU.
    """
    if device.type != "cuda":
        return
    problem = _problem(device)
    if problem is not None:
        give_up_kernels()
        LOG.warning(
            "this project's kernels do not run here: %s; PyTorch's own operations are used, which are slower "
            "(Triton needs a C compiler and Python.h, a cache folder it may write to, and a card that it knows)",
            problem,
        )


def _problem(device: torch.device) -> str | None:
    if not triton_is_installed():
        return "Triton is not installed"
    try:
        _settle_keys()
        ones = torch.ones(1, SIDE, SIDE, CHANNELS, dtype=torch.float16, device=device).permute(0, 3, 1, 2)
        total = torch.zeros(CHANNELS, device=device)
        add_column_sums(ones, total)
        right = bool((total == SIDE * SIDE).all())
    except Exception as error:
        # Whatever Triton and the compilers below it raise; a full or broken card is dealt with where work is lost.
        if is_out_of_memory(error):
            return None
        if is_gpu_failure(error):
            raise
        return first_line(error)
    return None if right else "a sum came out wrong"


def _settle_keys() -> None:
    from yolov9.ops.kernel_keys import settle_kernel_keys  # needs Triton

    settle_kernel_keys()
