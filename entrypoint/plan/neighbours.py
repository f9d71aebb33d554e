"""Says who else uses the GPUs of a job, what is left, and whether a second job gains anything there."""

from collections.abc import Iterable, Iterator

from entrypoint.host import Gpu, GpuFacts
from entrypoint.plan.decision import Budget, Decision
from entrypoint.units import GIB, size_text

SATURATED_PERCENT = 90
"""Above this utilisation before the start, two jobs on a card take about as long as one after the other."""
IDLE_BYTES = 1 * GIB
"""Drivers keep up to about 0.7 GiB of a large card for themselves; more than this belongs to somebody."""


def describe_neighbours(facts: GpuFacts, gpus: Iterable[Gpu], budget: Budget | None) -> Iterator[Decision]:
    """Yields a line for each GPU of the job that somebody uses already.

    Args:
        facts: where the numbers come from.
        gpus: those of the job.
        budget: GPU memory of the job; None when it is not estimated.
    """
    for gpu in gpus:
        if gpu.processes or gpu.used_bytes > IDLE_BYTES:
            yield Decision(
                name="neighbours",
                value=f"{size_text(gpu.used_bytes)} in use on GPU {gpu.index}",
                source=facts.source,
                reason="; ".join((_holders(gpu), _what_is_left(gpu, budget), _load(gpu))),
            )


def _holders(gpu: Gpu) -> str:
    if not gpu.processes:
        return "by processes that are not visible from here"
    words = (f"pid {p.pid} {p.name} {size_text(p.used_bytes)}".replace("  ", " ") for p in gpu.processes)
    return "by " + ", ".join(words)


def _what_is_left(gpu: Gpu, budget: Budget | None) -> str:
    takes = "" if budget is None else f", of which this job takes about {size_text(budget.needed_bytes)}"
    return f"{size_text(gpu.free_bytes)} are free{takes}"


def _load(gpu: Gpu) -> str:
    percent = gpu.utilisation_percent
    if percent is None:
        return "how busy it is cannot be read"
    if percent >= SATURATED_PERCENT:
        return f"{percent} % busy before the start: saturated, running in turn is about as fast"
    return f"{percent} % busy before the start"
