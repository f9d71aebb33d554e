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
from yolov9.ops.plain import give_up_kernels, kernels_wanted

TIME_LIMIT_S = 300
"""Compiling one by one, as they are launched, takes no longer."""
COMPILER_LOST = 3
"""Exit code of `compile_kernels` when a process that compiled did not come back."""
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

    Where a kernel does not compile for the card, all operations are plain ones from now on. Where it cannot be tried,
    kernels are compiled when they are launched first. A line says so.

    Args:
        context: of the run.
        model: that it trains, anywhere.
    """
    problem = None
    folder = context.environment.kernel_cache_dir
    if folder is not None and context.ranks.local_rank == 0 and _has_kernels(context):
        step = _step(context, model)
        problem = _problem(step, folder / f"ahead-{_digest(step)}.json")
    # The others wait for the first rank of their machine, and do as it does.
    if any_rank(problem is not None, context.ranks, context.precision.device):
        give_up_kernels()
    if problem is not None:
        LOG.warning(
            "this project's kernels do not compile for this GPU: %s; PyTorch's own operations are used, "
            "which are slower",
            problem,
        )


def _problem(step: StepToCompile, note: Path) -> str | None:
    """Returns what keeps the kernels from compiling; None: nothing, as far as is known."""
    try:
        report = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        report = _compile(step, note)
    return next(iter(report["failed"]), None)


def _compile(step: StepToCompile, note: Path) -> dict[str, Any]:
    LOG.info("compiling kernels for this GPU; later runs will find them compiled")
    program = [sys.executable, "-m", "yolov9.engine.compile_kernels", json.dumps(asdict(step))]
    try:
        result = subprocess.run(program, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return _not_tried(f"not done after {TIME_LIMIT_S} s")
    if result.returncode == COMPILER_LOST:
        return {"failed": ["a compiler broke down, or was killed"]}  # not noted: the next run tries again
    if result.returncode != 0:
        return _not_tried((result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1])
    text = result.stdout.splitlines()[-1]  # Triton prints what failed before it.
    report: dict[str, Any] = json.loads(text)
    LOG.info("%d kernels compiled in %.1f s", report["kernels"] - len(report["failed"]), report["seconds"])
    with suppress(OSError):  # Then the next run looks again, and finds what is compiled.
        note.write_text(text, encoding="utf-8")
    return report


def _not_tried(reason: str) -> dict[str, Any]:
    LOG.warning("kernels will be compiled one by one, when they are launched first: %s", reason)
    return {"failed": []}


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
