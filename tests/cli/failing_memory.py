"""Runs a plan with a memory that fails now and then: `failing_memory.py PLAN FAULTS REPORT`.

Every operation that takes memory for its result is counted, in the gradient of a batch, the update, the validation
and the checkpoint; those that FAULTS (JSON, rank -> faults) names raise what PyTorch raises when a GPU is full. REPORT
receives the counts, the faults that came, and a checksum of the pictures of each batch whose gradient was added; that
of rank N lies in a file of its own.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from yolov9.__main__ import leave, main
from yolov9.config.environment import read_environment
from yolov9.engine import training_state, validate
from yolov9.engine.average_judge import AverageJudge
from yolov9.engine.batch_gradient import BatchGradient
from yolov9.engine.flat import FlatParameters
from yolov9.model import DetectionModel


class FailingMemory(TorchDispatchMode):
    """Counts the operations that allocate, and lets some of them fail.

    A fault is (function, calls of it that have succeeded before, operation of the call); each comes once.
    """

    def __init__(self, faults: list[list[Any]]) -> None:
        super().__init__()
        self.faults = faults
        self.came: list[str] = []
        self.allocations: list[tuple[str, int, int]] = []
        self.succeeded: Counter[str] = Counter()
        self._call = ("", 0)
        self._count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func._schema.is_mutable and not any(result.alias_info for result in func._schema.returns):
            self._count += 1
            self._fail_if_due(str(func))
        return func(*args, **(kwargs or {}))

    def _fail_if_due(self, operation: str) -> None:
        name, calls = self._call
        for fault in self.faults:
            if fault[0] == name and fault[1] <= calls and fault[2] == self._count:
                self.faults.remove(fault)
                self.came.append(f"{name}: {operation}")
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 is full.")

    def inside(self, owner: Any, name: str) -> None:
        """Counts within this function from now on."""
        work: Callable[..., Any] = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self._call, self._count = (name, self.succeeded[name]), 0
            with self:
                result = work(*args, **kwargs)
            self.allocations.append((*self._call, self._count))
            self.succeeded[name] += 1
            return result

        setattr(owner, name, counted)


if __name__ == "__main__":
    plan, faults, report = map(Path, sys.argv[1:])
    rank = read_environment().rank
    memory = FailingMemory(json.loads(faults.read_text()).get(str(rank), []))
    for owner, name in ((BatchGradient, "add"), (FlatParameters, "clip_gradients"), (torch.optim.SGD, "step")):
        memory.inside(owner, name)
    memory.inside(AverageJudge, "update")
    memory.inside(DetectionModel, "predict_with_raw")
    memory.inside(validate, "nms")
    memory.inside(training_state, "all_finite")
    memory.inside(training_state, "copy_to_host")
    done: list[tuple[int, float]] = []
    add = BatchGradient.add

    def noted(self: BatchGradient, images: torch.Tensor, *rest: Any) -> torch.Tensor:
        total = add(self, images, *rest)
        done.append((len(images), float(images.double().sum())))
        return total

    BatchGradient.add = noted  # type: ignore[method-assign]
    evaluate = nn.Module.train
    nn.BatchNorm2d.train = lambda self, mode=True: evaluate(self, False)  # type: ignore[method-assign]
    code = main([str(plan)])
    if rank:
        report = report.with_suffix(f".{rank}.json")
    report.write_text(json.dumps({"allocations": memory.allocations, "came": memory.came, "batches": done}))
    leave(code)
