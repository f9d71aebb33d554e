"""Decides how many loader processes and computing threads a job gets."""

import math
from dataclasses import dataclass

from entrypoint.host import HostFacts
from entrypoint.plan.decision import Decision
from entrypoint.request import JobRequest
from entrypoint.units import count_text

MOST_WORKERS = 16
"""Per trainer process. A worker makes 100 to 200 mosaics of 640 px a second, so 16 outrun the fastest card and
leave other CPUs to other jobs; more can be asked for with --workers."""
CPUS_PER_WORKER_ON_CPU = 8
"""When the CPU also computes the model, one loader process keeps up with about this many computing CPUs."""
MOST_THREADS_BESIDE_GPU = 4
"""The trainer process beside a GPU launches kernels; more threads only help the suppression of boxes."""


@dataclass(frozen=True, kw_only=True)
class CpuShare:
    """CPUs of one trainer process."""

    cpus: float
    source: str
    divided: str
    """How the share was made from the limit, "" when it is the limit."""


def cpu_share(facts: HostFacts, request: JobRequest, ranks: int) -> CpuShare:
    """Returns the CPUs of one trainer process: the tightest limit, divided among jobs and ranks."""
    cpus, source = facts.cpu.usable, facts.cpu.source
    asked = request.environment.cpus_requested
    if asked and asked < cpus:
        cpus, source = float(asked), f"CPUs of the scheduler's task ({asked})"
    parts = request.job.jobs * ranks
    words = [f"{request.job.jobs} jobs"] * (request.job.jobs > 1) + [f"{ranks} ranks"] * (ranks > 1)
    divided = f"{count_text(cpus)} CPUs over {' and '.join(words)}" if words else ""
    return CpuShare(cpus=cpus / parts, source=source, divided=divided)


def decide_workers(share: CpuShare, request: JobRequest, *, on_gpu: bool) -> Decision:
    """Returns the number of loader processes: at least 1 unless 0 was asked for."""
    whole = math.floor(share.cpus)
    most = max(1, whole - 1)
    kept = f"{count_text(share.cpus)} CPU{'s' * (share.cpus != 1)}" + (
        ", 1 kept for the main process" if whole > 1 else ""
    )
    reason = f"{share.divided}: {kept}" if share.divided else kept
    asked = request.settings.workers
    if asked is not None:
        if asked <= most:
            return Decision(
                name="workers", value=asked, source=request.source("workers"), reason=f"asked for; {kept} here"
            )
        return Decision(
            name="workers", value=most, source=share.source, reason=f"{asked} asked for; {reason}", degraded=True
        )
    if not on_gpu:
        most = min(most, max(1, whole // CPUS_PER_WORKER_ON_CPU))
        reason += "; the model is computed on the CPU, which one loader process keeps busy"
    elif most > MOST_WORKERS:
        most = MOST_WORKERS
        reason += f"; {MOST_WORKERS} feed the fastest card"
    return Decision(name="workers", value=most, source=share.source, reason=reason)


def decide_fixed_workers(request: JobRequest, *, asked: bool) -> Decision:
    """Says whether the number of loader processes follows what the training needs; never above the planned one."""
    if request.was_given("workers"):
        return Decision(name="fixed_workers", value=True, source=request.source("workers"), reason="a number was given")
    reason = "asked for" if asked else "loader processes that the training does not need end until it does"
    return Decision(name="fixed_workers", value=asked, source=request.source("fixed_workers"), reason=reason)


def decide_threads(share: CpuShare, request: JobRequest, workers: int, *, on_gpu: bool) -> Decision:
    """Returns the computing threads of the trainer process; a loader process always has one."""
    user = request.environment.omp_threads
    if user is not None:
        return Decision(
            name="threads", value=user, source=f"OMP_NUM_THREADS={user}", reason="set by the user; loader processes: 1"
        )
    whole = max(1, math.floor(share.cpus))
    if on_gpu:
        value = max(1, min(whole - workers, MOST_THREADS_BESIDE_GPU))
        reason = "what the loader processes leave; each of them has 1"
    else:
        value = whole
        reason = "all CPUs compute the model; each loader process has 1"
    return Decision(name="threads", value=value, source=share.source, reason=reason)
