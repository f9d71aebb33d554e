"""How many pictures go through the network at a time: the arithmetic. What is measured, others do.

Two pictures are measured, then as many as these promise. A line is laid through the memory of both, and the largest
batch that it allows is measured to be sure. Nothing here touches a device.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

FIRST_PROBE = 2
"""Pictures of the first measurement."""
FARTHEST = 2
"""A line is not trusted farther than so many times its last point: another measurement comes in between."""
MIDDLE_SHARE = 0.6
"""Share of what the line promises that is measured in between: it fits also where the line is far from right."""
SAFETY = 0.96
"""Share of the memory that is aimed at; the rest is for fragmentation and for workspaces that cuDNN finds later."""
MEASURED_SAFETY = 0.98
"""The same for a batch that has been measured anyway: no error of the line is to be left room for."""
RETREAT = 0.9
"""After a batch that did not fit despite the line, so much of it is tried next."""
MOST_RETREATS = 4
EVEN_SHARE = 0.95
"""Where the most that fits is asked for, equal parts have to be at least so large a share of it."""
GAIN = 1.02
"""A larger batch has to be this much faster a picture, or the smaller one is taken."""


@dataclass(frozen=True)
class Probe:
    """What one batch took."""

    pictures: int
    peak_bytes: int
    """Most memory that the process held."""
    seconds: float
    """Time of the batch, without the first ones of its shape."""

    @property
    def seconds_each(self) -> float:
        """Time of one picture."""
        return self.seconds / self.pictures


Measure = Callable[[int], Probe | None]
"""Runs a batch of so many pictures; None when it does not fit."""


@dataclass(frozen=True)
class Limits:
    """What a batch is chosen for."""

    budget_bytes: int
    """Memory that this job may hold."""
    loaded: int
    """Pictures that are loaded at a time: more never go through the network together."""
    largest: bool = False
    """The user asked for as many as fit, also where fewer are as fast."""
    held_bytes: int = 0
    """What is held without any picture: weights, batches that are loaded, whatever is known of it."""

    @property
    def usable_bytes(self) -> float:
        """What is aimed at."""
        return self.budget_bytes * SAFETY


@dataclass(frozen=True)
class FoundBatch:
    """The choice, and why."""

    pictures: int
    predicted_bytes: int
    """What the line said for it."""
    measured_bytes: int
    reason: str
    probes: tuple[Probe, ...] = field(default=())


class DoesNotFit(Exception):
    """One picture is too much."""


def find_batch(measure: Measure, limits: Limits) -> FoundBatch:
    """Chooses a micro-batch.

    Raises:
        DoesNotFit: not even one picture fits.
    """
    failed = [limits.loaded + 1]

    def tried(pictures: int) -> Probe | None:
        probe = measure(pictures)
        if probe is None:
            failed.append(pictures)
        return probe

    probes = _first_probes(tried, limits)
    if len(probes) == 1:
        alone = probes[0]
        why = "all of the pictures loaded at a time fit" if alone.pictures == limits.loaded else "the most that fits"
        return _found(alone, alone.peak_bytes, probes, why)
    line, fits = _fitting(probes, limits, min(failed))
    if fits > FARTHEST * probes[-1].pictures:
        middle = tried(int(fits * MIDDLE_SHARE))
        probes += [middle] if middle is not None else []
        line, fits = _fitting(probes, limits, min(failed))
    even = _even(fits, limits)
    confirmed = _confirmed(tried, even, probes, limits)
    predicted = line.bytes(confirmed.pictures)
    if confirmed.pictures == limits.loaded:
        return _found(confirmed, predicted, probes, "all of the pictures loaded at a time fit")
    faster = _as_fast(probes, confirmed)
    if faster is not None and not limits.largest:
        why = f"{confirmed.pictures} fit and are not faster a picture"
        return _found(faster, line.bytes(faster.pictures), probes, why)
    in_parts = confirmed.pictures == even != fits
    why = f"{fits} fit; equal parts of {limits.loaded}" if in_parts else "the most that fits"
    return _found(confirmed, predicted, probes, why)


def _fitting(probes: list[Probe], limits: Limits, failed: int) -> tuple["_Line", int]:
    """The line, and how many pictures fit by it: fewer than have failed already."""
    line = _Line.through(probes)
    measured = [probe.pictures for probe in probes if probe.peak_bytes <= limits.budget_bytes * MEASURED_SAFETY]
    return line, max(1, min(failed - 1, line.pictures(limits.usable_bytes)), *measured)


def _first_probes(measure: Measure, limits: Limits) -> list[Probe]:
    """Two points for a line, the smaller one first; a single one where no other batch can be had."""
    first = measure(min(FIRST_PROBE, limits.loaded))
    if first is None:
        one = measure(1) if limits.loaded > 1 else None
        if one is None:
            raise DoesNotFit
        return [one]
    if first.pictures == limits.loaded and first.peak_bytes <= limits.budget_bytes:
        return [first]
    # What is held is known in part; the rest counts as the pictures', so that this promises too little, not too much.
    each_bytes = max(1.0, (first.peak_bytes - limits.held_bytes) / first.pictures)
    second = min(limits.loaded, int((limits.usable_bytes - limits.held_bytes) / each_bytes))
    while second > first.pictures:
        probe = measure(second)
        if probe is not None:
            return [first, probe]
        second = (first.pictures + second) // 2
    # One point says nothing of what is fixed: the line would promise half of the memory for half of the pictures.
    one = measure(1) if first.pictures > 1 else None
    return [first] if one is None else [one, first]


@dataclass(frozen=True)
class _Line:
    """Memory over pictures."""

    fixed_bytes: float
    each_bytes: float

    @classmethod
    def through(cls, probes: list[Probe]) -> "_Line":
        first, last = probes[0], probes[-1]
        each = max(1.0, (last.peak_bytes - first.peak_bytes) / (last.pictures - first.pictures))
        return cls(last.peak_bytes - each * last.pictures, each)

    def bytes(self, pictures: int) -> int:
        return int(self.fixed_bytes + self.each_bytes * pictures)

    def pictures(self, size_bytes: float) -> int:
        return math.floor((size_bytes - self.fixed_bytes) / self.each_bytes)


def _confirmed(measure: Measure, wanted: int, probes: list[Probe], limits: Limits) -> Probe:
    """A measured batch that keeps to the budget: the one that is wanted, or else the next smaller one that does.

    What is measured for it is added to the probes.
    """
    for _ in range(MOST_RETREATS):
        probe = next((known for known in probes if known.pictures == wanted), None)
        if probe is None and (probe := measure(wanted)) is not None:
            probes.append(probe)
        if probe is not None and probe.peak_bytes <= limits.budget_bytes:
            return probe
        wanted = max(1, int(wanted * RETREAT))
    within = [probe for probe in probes if probe.peak_bytes <= limits.budget_bytes]
    return max(within, key=lambda probe: probe.pictures, default=probes[0])


def _even(fits: int, limits: Limits) -> int:
    """The size of equal parts: as many parts as with the most that fits, and none whose statistics are of few pictures.

    Where as many as fit were asked for, only when it is not much below that.
    """
    even = -(-limits.loaded // -(-limits.loaded // fits))
    return fits if limits.largest and even < EVEN_SHARE * fits else even


def _as_fast(probes: list[Probe], confirmed: Probe) -> Probe | None:
    """The largest smaller batch whose pictures take no longer, if there is one."""
    fast = [probe for probe in probes if probe.pictures < confirmed.pictures]
    fast = [probe for probe in fast if probe.seconds_each <= confirmed.seconds_each * GAIN]
    return max(fast, key=lambda probe: probe.pictures, default=None)


def _found(probe: Probe, predicted: int, probes: Sequence[Probe], why: str) -> FoundBatch:
    return FoundBatch(probe.pictures, predicted, probe.peak_bytes, why, tuple(probes))
