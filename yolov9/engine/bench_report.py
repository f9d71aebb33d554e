"""The report of `bench`: a table, what the limit is, which setting to use, bench.csv and bench.png."""

import csv
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

GPU_WAITS_SHARE = 0.1
"""A GPU that idles less than this has what it needs."""
BUSY_SHARE = 0.7
"""Loader processes that calculate, or stand in line for a CPU, most of the time are held up by the CPU; the rest of
their time they wait for files."""
ABOUT_AS_FAST = 0.97
"""Fewer processes are better when they are as fast as that."""
ROOM_ABOVE = 1.1
"""Top of the picture, in terms of the highest value."""
CSV_FILE, PICTURE_FILE = "bench.csv", "bench.png"
ADVICE = {
    "GPU": "the loader keeps up; more workers gain nothing",
    "CPU": "more CPUs (docker run --cpus), --decode gpu where there is one, --cache ram when it fits, a smaller --img",
    "disk": "--stage copies the data to faster storage, --cache ram or disk keeps decoded pictures",
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One pair of workers and batch."""

    workers: int
    batch: int
    samples: int
    seconds: float
    waiting: float
    """Share of the time: of a GPU without work; without a GPU, of this process waiting for pictures."""
    workers_busy: float
    """Share of their time in which loader processes calculated or stood in line for a CPU."""
    cpu_percent: float
    """Of all processes of the bench; 100 is one CPU."""
    disk_mb_s: float | None
    """Read from storage, in 10^6 bytes a second; None: unknown."""
    step_ms: float | None = None
    """Time of a training step on the GPU; None without one."""

    @property
    def samples_s(self) -> float:
        """Pictures a second."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def limit(self) -> str:
        """What holds it up: GPU, CPU or disk."""
        if self.step_ms is not None and self.waiting <= GPU_WAITS_SHARE:
            return "GPU"
        return "CPU" if self.workers_busy >= BUSY_SHARE else "disk"


def best(rows: Sequence[Measured]) -> Measured:
    """Returns the pair to use: the fewest workers, then the largest batch, that are about as fast as the fastest."""
    fastest = max(row.samples_s for row in rows)
    near = [row for row in rows if row.samples_s >= ABOUT_AS_FAST * fastest]
    return min(near, key=lambda row: (row.workers, -row.batch))


def report_text(rows: Sequence[Measured]) -> str:
    """Returns the table and the verdict."""
    chosen = best(rows)
    on_gpu = chosen.step_ms is not None
    lines: list[tuple[str, ...]] = [
        ("workers", "batch", "samples/s", "waiting", "CPU %", "disk MB/s", "step ms", "limit")
    ]
    lines += [_cells(row) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    table = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    if not on_gpu:
        table.append("no GPU was used: the loader alone was measured, with nothing to compute beside it")
    setting = f"--workers {chosen.workers}" + (f" --batch {chosen.batch}" if on_gpu else "")
    table.append(f"limit:  {chosen.limit} ({ADVICE[chosen.limit]})")
    table.append(f"use:    {setting}")
    return "\n".join(table)


def _cells(row: Measured) -> tuple[str, ...]:
    return (
        str(row.workers),
        str(row.batch),
        f"{row.samples_s:.1f}",
        f"{row.waiting:.0%}",
        f"{row.cpu_percent:.0f}",
        "-" if row.disk_mb_s is None else f"{row.disk_mb_s:.1f}",
        "-" if row.step_ms is None else f"{row.step_ms:.1f}",
        row.limit,
    )


def write_table(rows: Sequence[Measured], folder: Path) -> Path:
    """Writes bench.csv and returns its path."""
    names = [field.name for field in fields(Measured)]
    path = folder / CSV_FILE
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*names, "samples_s", "limit"])
        writer.writeheader()
        for row in rows:
            writer.writerow({**asdict(row), "samples_s": round(row.samples_s, 2), "limit": row.limit})
    return path


def draw_table(rows: Sequence[Measured], folder: Path) -> Path:
    """Draws samples a second over workers, a line for each batch, into bench.png, and returns its path."""
    # It logs about its cache folder and font list, which mean nothing to the user.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axis = figure.subplots()
    for batch in sorted({row.batch for row in rows}):
        line = sorted((row.workers, row.samples_s) for row in rows if row.batch == batch)
        axis.plot([workers for workers, _ in line], [speed for _, speed in line], "o-", label=f"batch {batch}")
    axis.set_xlabel("loader processes")
    axis.set_ylabel("pictures a second")
    axis.set_ylim(0, ROOM_ABOVE * max(row.samples_s for row in rows) or None)
    axis.set_xticks(sorted({row.workers for row in rows}))
    axis.grid(alpha=0.3)
    axis.legend()
    path = folder / PICTURE_FILE
    figure.savefig(path, dpi=120)
    return path
