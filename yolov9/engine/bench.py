"""`bench`: how fast the loader, and with a GPU the whole training, is with different workers and batches.

The real loader on the user's data, and the real training step. The weights that come out are thrown away.
"""

import os
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import torch

from yolov9.config.environment import read_environment
from yolov9.config.recipe import load_recipe
from yolov9.config.settings import TrainSettings
from yolov9.data import DatasetIndex, load_dataset_config
from yolov9.data.loader import Batch, Loader, open_loader
from yolov9.engine.bench_report import CSV_FILE, PICTURE_FILE, Measured, draw_table, report_text, write_table
from yolov9.engine.captured import side_stream
from yolov9.engine.device_batch import DeviceFeed
from yolov9.engine.distributed import Ranks
from yolov9.engine.gpu_memory import limit_allocator
from yolov9.engine.loader_setup import train_loader_settings
from yolov9.engine.precision import choose_precision, resolve_device, set_backend_switches
from yolov9.engine.process_usage import UsageMeter
from yolov9.engine.read_split import read_split
from yolov9.engine.run_context import RunContext, with_defaults
from yolov9.engine.schedule import rounded_accumulation
from yolov9.engine.session import Session, open_session
from yolov9.engine.stop import StopRequest
from yolov9.errors import ExitCode, UserError
from yolov9.logs import LOG, show_result

EPOCHS = 1_000_000
"""The loader prepares the next epoch while one ends; the bench never comes to the last one."""
WARM_UP_SHARE = 0.3
"""At most so much of a pair's time goes by before measuring: workers start, kernels are chosen and captured."""
WARM_UP_STEPS = 5
"""First steps of a batch shape: cuDNN's search, then the capture of a CUDA graph."""
MOST_IN_USE = 2
"""Batches that the step or a copy to the GPU may still hold."""
LEAST_S = 0.5
"""A shorter measurement tells nothing."""


@dataclass(frozen=True, kw_only=True)
class BenchPlan:
    """What is to be measured, and how long."""

    seconds: float
    """For all measurements together; what comes before them (reading the data set, starting processes, compiling and
    choosing kernels) is not counted."""
    workers: Sequence[int]
    batches: Sequence[int]


def run(settings: TrainSettings, plan: BenchPlan, run_dir: Path) -> ExitCode:
    """Measures all pairs, prints the table, and writes bench.csv and bench.png.

    Raises:
        UserError: no pair could be measured in the time given.
    """
    device = resolve_device(settings.device)
    set_backend_switches(device)
    limit_allocator(device, settings.gpu_share)
    # Scanned before the clock starts; with a GPU each session reads it again, which the scan's cache makes short.
    environment = read_environment()
    config = load_dataset_config(settings.data, environment=environment)
    index = read_split(settings, config, "train", environment)
    rows: list[Measured] = []
    with StopRequest() as stop, side_stream(device):
        share = _Share(time.monotonic() + plan.seconds, len(plan.batches) * len(plan.workers), stop)
        for batch in plan.batches:
            if stop.requested:
                break
            context = _context(settings, plan, batch, run_dir, device)
            rows += _measure_batch(context, index, plan.workers, share)
        stopped = stop.requested
    if not rows:
        raise UserError(
            found=f"{plan.seconds:g} seconds, in which nothing could be measured",
            needed=f"time to start and {LEAST_S:g} s for each pair of workers and batch",
            remedy=f"--seconds {2 * plan.seconds:g}, or fewer values for --workers and --batch",
        )
    missing = len(plan.workers) * len(plan.batches) - len(rows)
    if missing:
        LOG.warning("%d pairs of workers and batch were left out for lack of time; --seconds gives more", missing)
    for line in report_text(rows).splitlines():
        show_result(line)
    write_table(rows, run_dir)
    draw_table(rows, run_dir)
    LOG.info("results: %s, %s", run_dir / CSV_FILE, run_dir / PICTURE_FILE)
    return ExitCode.STOPPED_RESUMABLE if stopped else ExitCode.DONE


@dataclass
class _Share:
    """Divides what is left of the time evenly among the pairs that are left."""

    deadline: float
    pairs: int
    stop: StopRequest

    def next_end(self) -> float | None:
        """When the next pair has to end; None when there is no time for it or a stop was asked for."""
        now = time.monotonic()
        end = now + (self.deadline - now) / max(1, self.pairs)
        self.pairs -= 1
        return None if self.stop.requested or end - now < LEAST_S else end


def _context(settings: TrainSettings, plan: BenchPlan, batch: int, run_dir: Path, device: torch.device) -> RunContext:
    changed = replace(
        settings, epochs=EPOCHS, batch_size=batch, micro_batch=None, workers=max(plan.workers), noplots=True, patience=0
    )
    return RunContext(
        settings=with_defaults(changed),
        recipe=load_recipe(settings.hyp),
        run_dir=run_dir,
        precision=choose_precision(settings.amp, device),
        ranks=Ranks(),
        environment=read_environment(),
    )


def _measure_batch(
    context: RunContext, index: DatasetIndex, workers: Sequence[int], share: _Share
) -> Iterator[Measured]:
    begun = time.monotonic()
    if context.precision.device.type == "cuda":
        with open_session(context) as session:
            session.claim.release()
            yield from _measure(_GpuConsumer(session), session.train_loader, workers, context.batch, share, begun)
        return
    with open_loader(train_loader_settings(context, index)) as loader:
        yield from _measure(_LoaderConsumer(), loader, workers, context.batch, share, begun)


def _measure(
    consumer: "_LoaderConsumer", loader: Loader, workers: Sequence[int], batch: int, share: _Share, begun: float
) -> Iterator[Measured]:
    epochs = count()
    with closing(_endless(loader, epochs)) as batches:
        for _, _samples in zip(range(WARM_UP_STEPS), consumer.consume(batches), strict=False):
            if share.stop.requested:
                break
    share.deadline += time.monotonic() - begun
    for number in workers:
        end = share.next_end()
        if end is None:
            continue
        loader.set_workers(number)
        with closing(_endless(loader, epochs)) as batches:
            row = _measure_pair(consumer, loader, batches, number, batch, end, share.stop)
        if row is not None:
            LOG.info("workers %d, batch %d: %.1f samples/s", number, batch, row.samples_s)
            yield row


def _endless(loader: Loader, epochs: Iterator[int]) -> Generator[Batch, None, None]:
    """Batches of one epoch after the other; when it is closed, those that are still in use go back to the loader."""
    last: deque[Batch] = deque(maxlen=MOST_IN_USE)
    try:
        for epoch in epochs:
            for batch in loader.epoch(epoch):
                last.append(batch)
                yield batch
    finally:
        for batch in last:
            batch.release()


def _measure_pair(
    consumer: "_LoaderConsumer",
    loader: Loader,
    batches: Iterator[Batch],
    workers: int,
    batch: int,
    end: float,
    stop: StopRequest,
) -> Measured | None:
    consumed = consumer.consume(batches)
    warm = time.monotonic() + WARM_UP_SHARE * (end - time.monotonic())
    for _, _samples in zip(range(WARM_UP_STEPS), consumed, strict=False):
        if time.monotonic() > warm:
            break
    consumer.start()
    meter, own = UsageMeter(loader.worker_pids), UsageMeter([os.getpid()])
    begun, samples = time.monotonic(), 0
    while time.monotonic() < end and not stop.requested:
        samples += next(consumed)
    waited_s, step_ms = consumer.finish()
    seconds = time.monotonic() - begun
    used, mine = meter.used(), own.used()
    if not samples:
        return None
    total = used + mine
    return Measured(
        workers=workers,
        batch=batch,
        samples=samples,
        seconds=seconds,
        waiting=min(1.0, max(0.0, waited_s / seconds)),
        workers_busy=min(1.0, (used.cpu_s + used.runnable_s) / (workers * seconds)),
        cpu_percent=100 * total.cpu_s / seconds,
        disk_mb_s=None if total.read_bytes is None else total.read_bytes / seconds / 1e6,
        step_ms=step_ms,
    )


class _LoaderConsumer:
    """Takes batches and gives them back at once."""

    def __init__(self) -> None:
        self._waited_s = 0.0

    def consume(self, batches: Iterator[Batch]) -> Iterator[int]:
        """Yields the number of samples of each batch."""
        for batch in batches:
            self._waited_s += batch.wait_s
            samples = len(batch.images)
            batch.release()
            yield samples

    def start(self) -> None:
        """Forgets what was counted so far."""
        self._waited_s = 0.0

    def finish(self) -> tuple[float, float | None]:
        """Returns seconds of waiting, and milliseconds of a step on the GPU."""
        return self._waited_s, None


class _GpuConsumer(_LoaderConsumer):
    """Trains with each batch."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._device = session.context.precision.device
        self._feed = DeviceFeed(self._device, session.context.precision.dtype, painter=session.painter)
        self._every = rounded_accumulation(session.context.accumulation_target)
        self._steps: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._begun = 0.0

    def consume(self, batches: Iterator[Batch]) -> Iterator[int]:
        """Yields the number of samples of each batch once its step is on the way to the GPU."""
        for number, batch in enumerate(self._feed(batches), 1):
            begin, end = _event(), _event()
            begin.record()
            self._session.step.add_gradient(batch.images, batch.targets)
            if number % self._every == 0:
                self._session.step.update()
            end.record()
            self._steps.append((begin, end))
            self._wait_for_step_before_last()
            yield len(batch.images)

    def _wait_for_step_before_last(self) -> None:
        """This process must not run ahead: what it has started must be done when the time is over."""
        if len(self._steps) > 1:
            self._steps[-2][1].synchronize()

    def start(self) -> None:
        """Forgets what was counted so far."""
        torch.cuda.synchronize(self._device)
        self._steps.clear()
        self._begun = time.monotonic()

    def finish(self) -> tuple[float, float | None]:
        """Returns seconds in which the GPU had nothing to do, and milliseconds of a step."""
        torch.cuda.synchronize(self._device)
        times = [begin.elapsed_time(end) for begin, end in self._steps]
        idle_s = time.monotonic() - self._begun - sum(times) / 1e3
        return idle_s, sum(times) / max(1, len(times))


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # not annotated in torch
