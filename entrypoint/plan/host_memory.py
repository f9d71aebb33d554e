"""Fits ring, mosaic window and loader processes into main memory, and adds up main memory and /dev/shm."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from entrypoint.host import HostFacts
from entrypoint.plan.batch import BatchPlan
from entrypoint.plan.decision import Budget, Decision, Need
from entrypoint.plan.decoded_cache import decide_cache
from entrypoint.plan.device import Devices
from entrypoint.plan.memory_use import MemoryUse
from entrypoint.request import JobRequest
from entrypoint.units import MIB, size_text
from yolov9.config.loader_memory import RING_SLOTS
from yolov9.config.settings import DetectSettings, TrainSettings
from yolov9.config.small_data import mosaic_window
from yolov9.errors import UserError

FEWEST_SLOTS = 2
"""One in use and one being filled."""
LEAST_TRAINING_BYTES = 512 * MIB
"""Of available memory: PyTorch, a trainer of the smallest model and its loaders. Measured (yolov9-t, 96 px, batch 4):
the kernel ends it under a limit of 544 MiB, and it trains under 576 MiB."""
MARGIN = 0.9
"""Share of the available memory that plans may fill."""
NCCL_BYTES_PER_RANK = 32 * MIB
"""Buffers in /dev/shm between processes of one machine: NCCL's default of 4 MiB a channel and direction."""


@dataclass(frozen=True, kw_only=True)
class HostMemoryPlan:
    """Decisions about main memory and where it goes."""

    decisions: tuple[Decision, ...]
    memory: Budget
    shm: Budget
    workers: Decision
    """Number of loader processes, perhaps fewer than before for lack of memory."""


def plan_host_memory(
    facts: HostFacts, request: JobRequest, devices: Devices, *, workers: Decision, batch: BatchPlan
) -> HostMemoryPlan:
    """Returns ring, cache and tables.

    Slots give way first, then the pictures of the mosaic window, then workers; the cache gets what is left.

    Raises:
        UserError: no training fits into the memory.
    """
    available, source = facts.memory.available_bytes, facts.memory.source
    if isinstance(request.settings, TrainSettings) and available is not None and available < LEAST_TRAINING_BYTES:
        raise UserError(
            found=f"{size_text(available)} of memory are available ({source})",
            needed=f"{size_text(LEAST_TRAINING_BYTES)} at the very least, for PyTorch and the smallest model",
            remedy="a higher limit (docker run --memory 4g), or end other programs",
        )
    allowed = None if available is None else int(available * MARGIN / request.job.jobs)
    wanted = MemoryUse(
        request=request,
        batch=batch,
        ranks=devices.ranks,
        on_gpu=bool(devices.gpus),
        slots=getattr(request.settings, "prefetch", None) or RING_SLOTS,
        workers=int(workers.value),
    )
    use = wanted if allowed is None else _fit(wanted, allowed)
    if use.workers < wanted.workers:
        total = replace(use, workers=wanted.workers).total_bytes
        why = f"{wanted.workers} need {size_text(total)}, {size_text(allowed or 0)} may be used"
        workers = Decision(name="workers", value=use.workers, source=source, reason=why, degraded=True)
    spare = None if allowed is None else allowed - use.total_bytes
    cache, cache_needs = decide_cache(facts, request, spare, devices.ranks)
    memory = Budget(resource="memory", needs=(*use.needs(), *cache_needs), available_bytes=allowed, source=source)
    decisions = [*_ring(wanted, use, source), *_decode_again(wanted, use, source), *cache]
    return HostMemoryPlan(decisions=tuple(decisions), memory=memory, shm=_shm(facts, devices.ranks), workers=workers)


def _fit(use: MemoryUse, allowed_bytes: int) -> MemoryUse:
    """Returns what fits, or the least there is."""
    while use.total_bytes > allowed_bytes and use.slots > FEWEST_SLOTS:
        use = replace(use, slots=use.slots - 1)
    settings = use.request.settings
    if use.total_bytes > allowed_bytes and isinstance(settings, TrainSettings) and any(use.window()):
        use = replace(use, request=replace(use.request, settings=replace(settings, decode_again=True)))
    while use.total_bytes > allowed_bytes and use.workers > 1:
        use = replace(use, workers=use.workers - 1)
    return use


def _ring(wanted: MemoryUse, use: MemoryUse, limit: str) -> Iterator[Decision]:
    if isinstance(use.request.settings, DetectSettings):
        return
    short = use.slots < wanted.slots
    fewer = f"{wanted.slots} do not fit beside the rest; " if short else ""
    reason = f"{fewer}{size_text(use.slots * use.slot_bytes)} of anonymous memory, nothing in /dev/shm"
    source = limit if short else use.request.source("prefetch")
    yield Decision(name="prefetch", value=use.slots, source=source, reason=reason, degraded=short)


def _decode_again(wanted: MemoryUse, use: MemoryUse, limit: str) -> Iterator[Decision]:
    asked, settings = wanted.request.settings, use.request.settings
    if not isinstance(asked, TrainSettings) or not isinstance(settings, TrainSettings) or settings.decode == "gpu":
        return
    forced = settings.decode_again and not asked.decode_again
    reason = "the mosaic window's pictures do not fit into the memory" if forced else "asked for"
    if not settings.decode_again:
        shared = mosaic_window(settings.mosaic_window, use.request.training_pictures)
        reason = "pictures of the mosaic window stay in memory" if shared else "there is no mosaic window"
    source = limit if forced else use.request.source("decode_again")
    yield Decision(name="decode_again", value=settings.decode_again, source=source, reason=reason, degraded=forced)


def _shm(facts: HostFacts, ranks: int) -> Budget:
    """The loader's batches are not there; only exchange between ranks is."""
    needs = [Need(what="loader", size_bytes=0, reason="its ring is anonymous memory, not files in /dev/shm")]
    if ranks > 1:
        needs.append(Need(what="NCCL", size_bytes=ranks * NCCL_BYTES_PER_RANK, reason=f"{ranks} ranks"))
    shm = facts.shm
    known = "there is no /dev/shm"
    if shm.present:
        known = f"{size_text(shm.free_bytes)} free of {size_text(shm.size_bytes)}"
    free = (shm.free_bytes if shm.free_bytes is not None else shm.size_bytes) if shm.present else 0
    return Budget(resource="/dev/shm", needs=tuple(needs), available_bytes=free, source=known)
