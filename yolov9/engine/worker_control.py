"""Keeps as many loader processes as the training needs: fewer leave CPUs to neighbours, more end the waiting.

Batches do not depend on who makes them, so nothing of the training changes with the number.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from yolov9.data.loader import Batch, Loader
from yolov9.engine.process_usage import Usage, UsageMeter
from yolov9.logs import LOG

INTERVAL_S = 10.0
"""Time of training between two decisions, over the ends of epochs: long enough for a hundred clock ticks a worker."""
LEAST_BATCHES = 50
"""Batches between two decisions: the first ones of a run take as long as compiling their kernels does."""
WAITED_ENOUGH_S = 1.0
"""So much waiting is decided upon at once: with short epochs an interval may last minutes."""
TRY_AGAIN = 30
"""Intervals after which a number of workers that was too small may be tried again: mosaic may be off by then."""
WAITED_TOO_LONG = 0.02
"""Share of the time that the trainer waited, above which there are too few workers."""
MOST_WAITING = 0.9
"""Share of the time that a number of workers is derived from, at most: ten times as many at once are enough."""
NO_CPU_FREE = 0.2
"""Share of the workers' time without a free CPU, above which more of them would only get in each other's way."""
HEADROOM = 1.3
"""More workers than the CPU time they use: pictures differ in size, and workers also wait for files."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """What was seen since the last decision."""

    workers: int
    waited: float
    """Share of the time that the trainer waited for batches."""
    always_full: bool
    """Whenever a batch was taken, all others that had been asked for lay ready."""
    busy_cpus: float
    """CPU time of the workers per time."""
    starved: float
    """Share of the time in which workers could have run and no CPU was free."""


def next_count(seen: Interval, least: int, most: int) -> int:
    """Returns how many workers there should be from now on, between `least` and `most`."""
    wanted = seen.workers
    if seen.waited > WAITED_TOO_LONG and seen.starved < NO_CPU_FREE:
        # What they made in all of the time is needed in the rest of it.
        wanted = max(seen.workers + 1, round(seen.workers / (1 - min(seen.waited, MOST_WAITING))))
    elif seen.always_full:
        wanted = min(seen.workers, math.ceil(seen.busy_cpus * HEADROOM))
    return min(max(wanted, least), most)


@dataclass
class _Sums:
    """What was counted since the last decision."""

    batches: int = 0
    seconds: float = 0.0
    waited_s: float = 0.0
    always_full: bool = True

    @property
    def suffice(self) -> bool:
        """Enough was seen for a decision."""
        complete = self.seconds >= INTERVAL_S and self.batches >= LEAST_BATCHES
        return complete or self.waited_s >= WAITED_ENOUGH_S


class WorkerControl:
    """Watches the batches of a loader and changes its number of workers.

    Args:
        loader: has as many workers as there may be.
        fixed: watch nothing and change nothing.
        clock: seconds, monotonic.
    """

    def __init__(self, loader: Loader, *, fixed: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._loader = loader
        self._most = loader.worker_count
        self._idle = fixed or self._most < 2
        self._clock = clock
        self._least, self._least_for = 1, 0
        self._meter: UsageMeter | None = None
        """None until the first batch: before it there are no workers."""
        self._sums = _Sums()

    def watch(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yields the batches of an epoch."""
        last = None
        for batch in batches:
            now = self._clock()
            if self._idle:
                pass
            elif self._meter is None:
                self._meter = UsageMeter(self._loader.worker_pids)
            elif last is not None:  # what came before the first batch of an epoch was a start or a validation
                self._see(self._meter, batch, now - last)
            last = now
            yield batch

    def _see(self, meter: UsageMeter, batch: Batch, seconds: float) -> None:
        sums = self._sums
        sums.batches += 1
        sums.seconds += seconds
        sums.waited_s += batch.wait_s
        sums.always_full = sums.always_full and self._loader.all_prepared
        if sums.suffice:
            self._decide(meter.used(), sums)
            self._sums = _Sums()
            self._meter = UsageMeter(self._loader.worker_pids)

    def _decide(self, used: Usage, sums: _Sums) -> None:
        self._least_for += 1
        if self._least_for > TRY_AGAIN:
            self._least = 1
        now = self._loader.worker_count
        seen = Interval(
            workers=now,
            waited=sums.waited_s / sums.seconds,
            always_full=sums.always_full,
            busy_cpus=used.cpu_s / sums.seconds,
            starved=used.runnable_s / max(used.cpu_s + used.runnable_s, 1e-9),
        )
        wanted = next_count(seen, self._least, self._most)
        if wanted == now:
            return
        if wanted > now:
            self._least, self._least_for = now + 1, 0
            why = f"the training waited for {seen.waited:.0%} of the time"
        else:
            why = f"all batches lay ready, {seen.busy_cpus:.1f} CPUs were enough for them"
        LOG.info("loader processes %d -> %d of at most %d: %s", now, wanted, self._most, why)
        self._loader.set_workers(wanted)
