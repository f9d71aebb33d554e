"""Has the kernels of a run compiled side by side before its first step, by a process that ends before that.

Compiled one by one, each when it is launched first, they take 45 to 130 s at the first start on a kind of GPU.
"""

import hashlib
import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import yolov9
from yolov9.config.settings import FIND
from yolov9.engine.batch_finder import FIRST_PROBE
from yolov9.engine.distributed import any_rank
from yolov9.engine.run_context import RunContext
from yolov9.logs import LOG
from yolov9.loss import LossSettings
from yolov9.model import DetectionModel
from yolov9.ops.plain import kernels_wanted

TIME_LIMIT_S = 300
"""Compiling one by one, as they are launched, takes no longer."""
LIBRARIES = ("torch", "triton")
"""Whose versions decide, beside our own code, whether compiled kernels are found again."""


@dataclass(frozen=True, kw_only=True)
class StepToCompile:
    """Which step, and for what; plain values, so that it can be sent as JSON."""

    graph: dict[str, Any]
    classes: int
    imgsz: int
    batches: list[int]
    """Pictures that go through the network at a time."""
    dtype: str
    recompute: bool
    loss: dict[str, Any]
    """LossSettings."""
    capability: list[int]
    """Compute capability of the card, major and minor."""
    processes: int


def compile_kernels_ahead(context: RunContext, model: DetectionModel) -> None:
    """Compiles what a run will launch, where that is not known to be done; all ranks call it together.

    Where it fails, a line says so, and kernels are compiled when they are launched first.

    Args:
        context: of the run.
        model: that it trains, anywhere.
    """
    folder = context.environment.kernel_cache_dir
    if folder is not None and context.ranks.local_rank == 0 and _has_kernels(context):
        step = _step(context, model)
        done = folder / f"ahead-{_digest(step)}.json"
        if not done.exists():
            _compile(step, done)
    any_rank(False, context.ranks, context.precision.device)  # The others wait for the first rank of their machine.


def _compile(step: StepToCompile, done: Path) -> None:
    LOG.info("compiling kernels for this GPU; later runs will find them compiled")
    program = [sys.executable, "-m", "yolov9.engine.compile_kernels", json.dumps(asdict(step))]
    try:
        result = subprocess.run(program, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return _say_failed(f"not done after {TIME_LIMIT_S} s")
    if result.returncode != 0:
        return _say_failed((result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1])
    report = json.loads(result.stdout)
    LOG.info("%d kernels compiled in %.1f s", report["kernels"], report["seconds"])
    with suppress(OSError):  # Then the next run looks again, and finds what is compiled.
        done.write_text(result.stdout, encoding="utf-8")
    return None


def _say_failed(reason: str) -> None:
    LOG.warning("kernels will be compiled one by one, when they are launched first: %s", reason)


def _has_kernels(context: RunContext) -> bool:
    settings, precision = context.settings, context.precision
    half_on_gpu = precision.device.type == "cuda" and precision.dtype != torch.float32
    return half_on_gpu and not settings.plain_step and kernels_wanted()


def _step(context: RunContext, model: DetectionModel) -> StepToCompile:
    settings = context.settings
    return StepToCompile(
        graph=model.graph,
        classes=model.nc,
        imgsz=settings.imgsz,
        batches=_batches(context),
        dtype=str(context.precision.dtype).removeprefix("torch."),
        recompute=settings.checkpoint_activations,
        loss=asdict(LossSettings.from_recipe(context.recipe, context.environment)),
        capability=list(torch.cuda.get_device_capability(context.precision.device)),
        # The loader's processes have little to do meanwhile, and were counted against every limit.
        processes=max(1, settings.workers or 0) * context.ranks.world,
    )


def _batches(context: RunContext) -> list[int]:
    wanted = context.settings.micro_batch
    if wanted in FIND:
        return sorted({min(FIRST_PROBE, context.batch), context.batch})
    return [min(wanted or context.batch, context.batch)]


def _digest(step: StepToCompile) -> str:
    """Changes with everything that decides which kernels there are, and how they are compiled."""
    found = hashlib.sha256(json.dumps(asdict(replace(step, processes=1)), sort_keys=True).encode())
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found.update(version(name).encode())
    folder = Path(yolov9.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]
