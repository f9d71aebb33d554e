"""Speed and memory of the training step on synthetic data: `python -m yolov9.engine.bench_step --help`.

One step is forward, loss, backward, clipping, optimizer and average. The fast path is what training uses on a GPU; the
plain path runs the same model operation by operation.
"""

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from yolov9.config.environment import read_environment
from yolov9.config.recipe import load_recipe
from yolov9.config.settings import TrainSettings
from yolov9.engine import step_setup
from yolov9.engine.captured import side_stream
from yolov9.engine.distributed import Ranks
from yolov9.engine.kernel_check import check_kernels
from yolov9.engine.precision import choose_precision, resolve_device, set_backend_switches
from yolov9.engine.random_targets import random_rows
from yolov9.engine.run_context import RunContext
from yolov9.engine.step import TrainStep
from yolov9.loss import pack_targets
from yolov9.model import build_model

CLASSES = 80
"""Of a model that is made by name."""
OBJECTS_PER_PICTURE = 16
"""About what a mosaic of four photographs of COCO shows."""
WARM_STEPS = 4
"""One as it is, one that is captured, and replays until clocks and caches are warm."""
LEAST_S, LEAST_STEPS = 1.5, 8
"""Timing goes on for so long."""
PROFILED_STEPS = 3
GIB = 2**30


@dataclass(frozen=True)
class Case:
    """What is measured."""

    model: str
    batch: int
    plain: bool
    imgsz: int
    recompute: bool


@dataclass(frozen=True)
class Figures:
    """What was seen."""

    step_ms: float
    peak_bytes: int
    """Most memory that PyTorch held at a time, CUDA graphs included."""
    first_step_s: float
    """From the finished model to the end of the first step: kernel compilation, search for algorithms."""
    busy: float | None
    """Share of the time in which the GPU calculates; None where there is no GPU."""
    kernels: list[tuple[str, float, int]]
    """Name, milliseconds and calls a step, longest first."""


def measure(case: Case, device: torch.device) -> Figures:
    """Builds a model from scratch and runs steps with it.

    Raises:
        torch.OutOfMemoryError: the case needs more memory than there is.
    """
    with side_stream(device):
        step = make_step(case, device)
        images, targets = make_batch(case, device)

        def once() -> None:
            step.add_gradient(images, targets)
            step.update()
            _wait(device)

        started = time.perf_counter()
        once()
        first_step_s = time.perf_counter() - started
        for _ in range(WARM_STEPS - 1):
            once()
        step_ms = _time_steps(step, images, targets, device)
        busy, kernels = _profile(once) if device.type == "cuda" else (None, [])
    peak = torch.cuda.max_memory_reserved(device) if device.type == "cuda" else 0
    return Figures(step_ms, peak, first_step_s, busy, kernels)


def make_step(case: Case, device: torch.device, *, search: bool = True) -> TrainStep:
    """Returns a step with a model from scratch; without `search` cuDNN chooses its kernels by its own rules."""
    torch.manual_seed(0)
    settings = TrainSettings(
        imgsz=case.imgsz,
        batch_size=case.batch,
        accumulate=1,
        checkpoint_activations=case.recompute,
        plain_step=case.plain,
    )
    context = RunContext(
        settings=settings,
        recipe=load_recipe(settings.hyp),
        run_dir=Path(),
        precision=choose_precision(settings.amp, device),
        ranks=Ranks(),
        environment=read_environment(),
    )
    return step_setup.make_step(context, build_model(case.model), context.ranks, search=search).step


def make_batch(case: Case, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns random pictures (B, 3, H, W) on the device and a table of targets, as the step takes them."""
    generator = torch.Generator().manual_seed(0)
    shape = (case.batch, case.imgsz, case.imgsz, 3)
    pictures = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8).to(device).permute(0, 3, 1, 2)
    images = pictures.to(choose_precision("auto", device).dtype).div_(255)
    rows = random_rows(case.batch, OBJECTS_PER_PICTURE, CLASSES, generator)
    return images, pack_targets(rows, case.batch).to(device)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _time_steps(step: TrainStep, images: torch.Tensor, targets: torch.Tensor, device: torch.device) -> float:
    """Milliseconds of a step, when the host may run ahead of the device as in training."""
    steps, started = 0, time.perf_counter()
    while steps < LEAST_STEPS or time.perf_counter() - started < LEAST_S:
        for _ in range(LEAST_STEPS):
            step.add_gradient(images, targets)
            step.update()
        _wait(device)
        steps += LEAST_STEPS
    return (time.perf_counter() - started) / steps * 1e3


def _profile(once: Callable[[], None]) -> tuple[float, list[tuple[str, float, int]]]:
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as trace:
        for _ in range(PROFILED_STEPS):
            once()
    spans = sorted(
        (event.time_range.start, event.time_range.end) for event in trace.events() if event.device_type.name == "CUDA"
    )
    working = until = 0.0
    for start, end in spans:
        working += max(0.0, end - max(start, until))
        until = max(until, end)
    kernels = [
        (entry.key, entry.self_device_time_total / PROFILED_STEPS / 1e3, entry.count // PROFILED_STEPS)
        for entry in trace.key_averages()
        if entry.self_device_time_total > 0
    ]
    return working / (until - spans[0][0]), sorted(kernels, key=lambda kernel: -kernel[1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints one line a case; a case that does not fit says so."""
    options = _parse(arguments)
    device = resolve_device(options.device)
    set_backend_switches(device)
    check_kernels(device)
    print("model      batch  path     images/s       ms   peak GiB  busy %  first step s", flush=True)
    for name in options.models:
        for batch in options.batches:
            for path in options.paths:
                case = Case(name, batch, path == "plain", options.img, options.checkpoint_activations)
                label = f"{name:<10} {batch:>5}  {path:<5}"
                try:
                    figures = measure(case, device)
                except torch.OutOfMemoryError:
                    print(f"{label}  does not fit", flush=True)
                else:
                    print(f"{label} {_row(batch, figures)}", flush=True)
                    if options.kernels:
                        _write_kernels(Path(options.kernels) / f"{name}-{batch}-{path}.txt", figures)
                gc.collect()
                if device.type == "cuda":
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats(device)
    return 0


def _row(batch: int, figures: Figures) -> str:
    busy = "     -" if figures.busy is None else f"{figures.busy * 100:6.1f}"
    speed = f"{batch / figures.step_ms * 1e3:11.1f} {figures.step_ms:8.2f}"
    return f"{speed} {figures.peak_bytes / GIB:10.2f}  {busy} {figures.first_step_s:13.1f}"


def _write_kernels(path: Path, figures: Figures) -> None:
    lines = [f"{ms:9.3f} ms {calls:6d} calls  {name}" for name, ms, calls in figures.kernels]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, ""]))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models = ["yolov9-t", "yolov9-s", "yolov9-m", "yolov9-c", "yolov9-e"]
    parser.add_argument("--models", nargs="+", default=models, help="models by name")
    parser.add_argument("--batches", nargs="+", type=int, default=[16, 64, 128], help="pictures a step")
    parser.add_argument("--paths", nargs="+", choices=["fast", "plain"], default=["fast", "plain"])
    parser.add_argument("--img", type=int, default=640, help="picture size in pixels")
    parser.add_argument("--device", default="", help="as in training")
    parser.add_argument("--checkpoint-activations", action="store_true", help="as in training")
    parser.add_argument("--kernels", default="", metavar="DIR", help="write the time of each kernel to files in DIR")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
