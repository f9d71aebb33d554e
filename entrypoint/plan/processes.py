"""Fits the loader processes into the limit of processes and threads (`docker run --pids-limit`, ulimit -u)."""

from dataclasses import replace

from entrypoint.host import HostFacts
from entrypoint.plan.decision import Decision
from entrypoint.plan.memory_use import LOADERS_OF_TRAINING
from entrypoint.request import JobRequest
from yolov9.config.settings import DetectSettings, TrainSettings
from yolov9.errors import UserError

FEWEST = 24
"""With one loader process and two computing threads a training was seen to have 12; the data set is looked at with 16
threads before, and `docker exec` and the health check take some."""
FEWEST_ON_GPU = 48
"""An estimate: threads of CUDA and of the kernel compiler come on top."""
BESIDE_LOADERS = 16
"""Init, supervisor, trainer and its background threads, health check; computing threads come on top, twice."""
OF_CUDA = FEWEST_ON_GPU - FEWEST


def check_processes(facts: HostFacts, *, on_gpu: bool = False) -> None:
    """Refuses a limit under which Python cannot start its threads.

    Raises:
        UserError: with the limit and what is needed.
    """
    limit, fewest = facts.limits.processes, FEWEST_ON_GPU if on_gpu else FEWEST
    if limit is not None and limit < fewest:
        raise UserError(
            found=f"at most {limit} processes and threads are allowed here (pids.max, ulimit -u)",
            needed=f"{fewest} for a trainer, one loader process and their threads",
            remedy="docker run --pids-limit 512, or ulimit -u 512",
        )


def fit_processes(
    facts: HostFacts, request: JobRequest, workers: Decision, *, threads: int, ranks: int, on_gpu: bool
) -> Decision:
    """Returns the number of loader processes that the limit leaves room for.

    Args:
        facts: with the limit.
        request: whose command decides how many loaders there are.
        workers: what CPUs and memory allow.
        threads: computing threads of a trainer.
        ranks: trainers.
        on_gpu: they use CUDA.

    Raises:
        UserError: there is no room for a single one.
    """
    if isinstance(request.settings, DetectSettings):
        return workers
    check_processes(facts, on_gpu=on_gpu)
    limit = facts.limits.processes
    if limit is None:
        return workers
    loaders = LOADERS_OF_TRAINING if isinstance(request.settings, TrainSettings) else 1
    rest = BESIDE_LOADERS + 2 * threads + (OF_CUDA if on_gpu else 0)
    most = max(1, (limit // request.job.jobs // ranks - rest) // loaders)
    if workers.value <= most:
        return workers
    reason = f"{workers.value} need more processes than the limit of {limit} allows beside the trainer"
    return replace(
        workers, value=most, source=f"limit of processes {limit}", reason=f"{reason}: --pids-limit", degraded=True
    )
