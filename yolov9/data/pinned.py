"""Page-locked memory: what a CUDA device copies from while the program goes on."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from yolov9.logs import LOG


class PageLock:
    """Locks an array's pages for CUDA until `release`; a failure is said once and costs speed, not the run.

    Args:
        memory: uint8, page-aligned.
    """

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self._memory = memory
        self._address = memory.ctypes.data
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch has no annotations there
        result = runtime.cudaHostRegister(self._address, memory.nbytes, 0)
        self._locked = int(result) == 0
        if not self._locked:
            megabytes = memory.nbytes / 1e6
            LOG.warning("cannot page-lock %.0f MB for the GPU (%s): copies to it will wait", megabytes, result)

    def release(self) -> None:
        """Unlocks the pages; no copy may be under way."""
        if self._locked:
            self._locked = False
            torch.cuda.synchronize()
            runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # as above
            runtime.cudaHostUnregister(self._address)
