"""One job at a time looks at the free memory of a GPU, and lets the next one look once it has taken its own."""

import fcntl
import time
from pathlib import Path
from types import TracebackType
from typing import IO

import torch

from yolov9.config.environment import Environment
from yolov9.logs import LOG

LONGEST_WAIT_S = 300.0
"""A job that has not taken its memory by then is not waited for, so that no job waits for ever."""
SEVERAL_RANKS_WAIT_S = 30.0
"""Ranks of two jobs may wait for each other: one has the lock of the first GPU, the other that of the second."""
POLL_S = 0.2
CLAIMS_DIR = "yolov9-gpu-claims"


class GpuClaim:
    """A lock for each GPU, held from looking at its free memory until the memory is taken.

    Jobs find each other through a folder that both can write to: that of the cache, else that of temporary files. A
    process that ends, however it does, gives its lock back.

    Args:
        folder: where lock files lie.
        gpu: name of the GPU, the same in all processes; "" for none, and then nothing is locked.
        longest_wait_s: a job that holds the lock for longer is not waited for.
    """

    def __init__(self, folder: Path, gpu: str, longest_wait_s: float = LONGEST_WAIT_S) -> None:
        self._path = folder / CLAIMS_DIR / f"{gpu}.lock" if gpu else None
        self._longest_wait_s = longest_wait_s
        self._file: IO[bytes] | None = None

    def __enter__(self) -> "GpuClaim":
        if self._path is not None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("ab")
            except OSError as error:
                LOG.debug("no lock for the GPU, %s: %s", self._path, error)
        if self._file is not None:
            self._wait(self._file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Lets the next job look; more calls do no harm."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _wait(self, file: IO[bytes]) -> None:
        begun, said = time.monotonic(), False
        while time.monotonic() - begun < self._longest_wait_s:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if not said:
                    LOG.info("another job is about to take memory of this GPU: waiting until it has it")
                    said = True
            except OSError as error:
                LOG.debug("no locks on %s: %s", self._path, error)
                return
            time.sleep(POLL_S)
        LOG.warning(
            "a job on this GPU has not taken its memory for %.0f s: not waiting any more", time.monotonic() - begun
        )


def claim_gpu(device: torch.device, environment: Environment) -> GpuClaim:
    """Returns the lock of a device; one that locks nothing on the CPU."""
    folder = environment.cache_dir or environment.temporary_dir
    gpu = str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""
    return GpuClaim(folder, gpu, LONGEST_WAIT_S if environment.world_size == 1 else SEVERAL_RANKS_WAIT_S)
