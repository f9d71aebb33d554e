"""Compiles the kernels of a training step side by side: `python -m yolov9.engine.compile_kernels SPECIFICATION`.

A training would compile them one by one, each when it is launched first, which takes up to minutes. Here a step and a
validation run on tensors without content, the launches are caught, and processes compile what was caught. No GPU is
touched; what stays lies in Triton's cache folder. It runs in a process of its own because it changes what launches do.
"""

import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget

from yolov9.child_process import die_with_parent
from yolov9.engine.batch_gradient import BatchGradient
from yolov9.engine.distributed import Ranks
from yolov9.engine.flat import FlatParameters
from yolov9.engine.judge import Judge
from yolov9.engine.kernels_ahead import COMPILER_LOST, StepToCompile
from yolov9.engine.loss_meter import LossMeter
from yolov9.engine.model_setup import place_model
from yolov9.engine.optimizer import group_parameters
from yolov9.engine.precision import Precision
from yolov9.errors import first_line
from yolov9.loss import DetectionLoss, LossSettings
from yolov9.model import build_model, for_inference
from yolov9.ops.kernel_keys import settle_kernel_keys
from yolov9.ops.launches import Launch, caught_launches

OBJECTS = 16
"""Objects of a picture; the kernels are the same for nearly any number."""
THREADS_OF_A_WARP = 32
"""On every NVIDIA card."""
_LAUNCHES: list[Launch] = []
"""Of a compiling process: what all of them share; only numbers are sent, because kernels cannot be."""


class _Target:
    """Stands for the driver of a card, of which a compilation wants to know the kind."""

    def __init__(self, capability: Sequence[int]) -> None:
        self._target = GPUTarget("cuda", capability[0] * 10 + capability[1], THREADS_OF_A_WARP)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device


def find_launches(step: StepToCompile) -> list[Launch]:
    """Returns one launch of each kind that a step and the validation of such a model need."""
    precision = Precision(torch.device("meta"), getattr(torch, step.dtype))
    with caught_launches((step.capability[0], step.capability[1])) as launches:
        model = place_model(build_model(step.graph, nc=step.classes), precision, Ranks(), sync_bn=False)
        settings = LossSettings(**step.loss)
        flat = FlatParameters([[parameter for _, parameter in group] for group in group_parameters(model)])
        flat.make_compute_copies(precision.dtype)
        loss, scaler = DetectionLoss(model, settings), torch.amp.GradScaler("cpu", enabled=False)
        gradient = BatchGradient(model, loss, scaler, precision, LossMeter(precision.device), recompute=step.recompute)
        for batch in step.batches:
            images, table = _batch(batch, step.imgsz, precision.dtype)
            gradient.add(images.permute(0, 3, 1, 2), table, batch)
        half = Precision(precision.device, torch.float16)
        folded = for_inference(model, half.device, half.dtype).to(memory_format=torch.channels_last)
        with torch.no_grad():
            Judge(folded, half, DetectionLoss(folded, settings))(*_batch(max(step.batches), step.imgsz, torch.uint8))
    return list(launches.values())


def compile_all(launches: Sequence[Launch], capability: Sequence[int], processes: int) -> list[str]:
    """Compiles every launch for a card of this compute capability.

    Returns:
        What could not be compiled for it, and why.

    Raises:
        BrokenProcessPool: a compiler was killed, or broke down itself.
    """
    triton.runtime.driver.set_active(_Target(capability))
    with ProcessPoolExecutor(processes, get_context("fork"), _become_compiler, (launches,)) as pool:
        return [problem for problem in pool.map(_problem, range(len(launches))) if problem]


def main(specification: str) -> None:
    """Does it, and prints how many kernels there are, how long they took, and which failed, as a JSON object."""
    die_with_parent()
    step = StepToCompile(**json.loads(specification))
    begun = time.monotonic()
    settle_kernel_keys()
    launches = find_launches(step)
    try:
        failed = compile_all(launches, step.capability, step.processes)
    except BrokenProcessPool:
        sys.exit(COMPILER_LOST)
    print(json.dumps({"kernels": len(launches), "seconds": time.monotonic() - begun, "failed": failed}))


def _become_compiler(launches: Sequence[Launch]) -> None:
    die_with_parent()
    _LAUNCHES.extend(launches)


def _problem(number: int) -> str:
    """Compiles a kernel; says what is wrong with it, or nothing."""
    launch = _LAUNCHES[number]
    try:
        launch.compile()
    except Exception as error:  # Of Triton, LLVM or ptxas: they share no class.
        return f"{launch.kernel.__name__}: {first_line(error)}"
    return ""


def _batch(pictures: int, side: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    meta = torch.device("meta")
    images = torch.empty(pictures, side, side, 3, dtype=dtype, device=meta)
    return images, torch.empty(pictures, OBJECTS, 5, device=meta)


if __name__ == "__main__":
    main(sys.argv[1])
