"""Decides what is kept in main memory: loader ring, decoded cache; and adds up main memory and /dev/shm."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from entrypoint.host import HostFacts
from entrypoint.plan.batch import BatchPlan
from entrypoint.plan.decision import Budget, Decision, Need
from entrypoint.plan.memory_model import model_bytes, picture_bytes
from entrypoint.request import JobRequest
from entrypoint.units import GIB, MIB, size_text
from yolov9.config.loader_memory import (
    BYTES_PER_PIXEL,
    PICTURE_FACTOR,
    RING_SLOTS,
    VALIDATION_BATCH_FACTOR,
    WINDOW_LAG,
)
from yolov9.config.settings import DetectSettings, TrainSettings
from yolov9.config.small_data import MOST_PICTURES, is_small, mosaic_window
from yolov9.engine.plan_record import RESUMED
from yolov9.errors import UserError

FEWEST_SLOTS = 2
"""One in use and one being filled."""
LOADERS_OF_TRAINING = 2
"""Training and validation each have their own loader processes; one set idles while the other works."""
WORKER_BYTES = 120 * MIB
"""A loader process: numpy and OpenCV (about 60 MiB private) and the pictures it holds decoded."""
TRAINER_BYTES = {True: 2 * GIB, False: 600 * MIB}
"""The trainer process with PyTorch loaded, with and without CUDA."""
LEAST_TRAINING_BYTES = 512 * MIB
"""Of available memory: PyTorch, a trainer of the smallest model and its loaders. Measured (yolov9-t, 96 px, batch 4):
the kernel ends it under a limit of 544 MiB, and it trains under 576 MiB."""
MARGIN = 0.9
"""Share of the available memory that plans may fill."""
EASILY = 0.5
"""Share of the memory that is left, up to which decoded pictures are kept without being asked for."""
MOST_KEPT = 2 * MOST_PICTURES
"""Pictures of both splits that are kept without being asked for."""
DECODED_WHEN_NEEDED = "pictures are decoded when they are needed"
LEAST_CACHED_SHARE = 0.1
"""When less of the pictures fits, keeping them decoded saves too little to be worth the memory."""
GB = 1e9
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
    facts: HostFacts, request: JobRequest, *, workers: Decision, batch: BatchPlan, ranks: int
) -> HostMemoryPlan:
    """Returns ring, cache and tables.

    Slots give way first, then the pictures of the mosaic window, then workers; the cache gets what is left.

    Raises:
        UserError: no training fits into the memory.
    """
    available = facts.memory.available_bytes
    if isinstance(request.settings, TrainSettings) and available is not None and available < LEAST_TRAINING_BYTES:
        raise UserError(
            found=f"{size_text(available)} of memory are available ({facts.memory.source})",
            needed=f"{size_text(LEAST_TRAINING_BYTES)} at the very least, for PyTorch and the smallest model",
            remedy="a higher limit (docker run --memory 4g), or end other programs",
        )
    allowed = None if available is None else int(available * MARGIN / request.job.jobs)
    wanted = int(workers.value)
    fitting, slots, count = _fit(request, allowed, wanted, batch, ranks)
    if count < wanted:
        total = _total_bytes(fitting, slots, wanted, batch, ranks)
        why = f"{wanted} need {size_text(total)}, {size_text(allowed or 0)} may be used"
        workers = Decision(name="workers", value=count, source=facts.memory.source, reason=why, degraded=True)
    needs = _needs(fitting, slots, count, batch, ranks)
    spare = None if allowed is None else allowed - sum(need.size_bytes for need in needs)
    cache, cache_needs = _cache(facts, request, spare, ranks)
    memory = Budget(
        resource="memory", needs=(*needs, *cache_needs), available_bytes=allowed, source=facts.memory.source
    )
    decisions = (
        [] if isinstance(request.settings, DetectSettings) else [_ring(slots, batch.batch_size, request, memory)]
    )
    decisions += _decode_again(facts, request, fitting)
    return HostMemoryPlan(decisions=(*decisions, *cache), memory=memory, shm=_shm(facts, ranks), workers=workers)


def _fit(
    request: JobRequest, allowed: int | None, workers: int, batch: BatchPlan, ranks: int
) -> tuple[JobRequest, int, int]:
    """Returns the request, perhaps with `decode_again`, and the slots and workers that fit."""
    slots = wanted_slots(request)
    if allowed is None:
        return request, slots, workers
    while _total_bytes(request, slots, workers, batch, ranks) > allowed and slots > FEWEST_SLOTS:
        slots -= 1
    settings, short = request.settings, _total_bytes(request, slots, workers, batch, ranks) > allowed
    if short and isinstance(settings, TrainSettings) and any(_window(request, slots * batch.batch_size, ranks)):
        request = replace(request, settings=replace(settings, decode_again=True))
    while _total_bytes(request, slots, workers, batch, ranks) > allowed and workers > 1:
        workers -= 1
    return request, slots, workers


def _total_bytes(request: JobRequest, slots: int, workers: int, batch: BatchPlan, ranks: int) -> int:
    return sum(need.size_bytes for need in _needs(request, slots, workers, batch, ranks))


def _decode_again(facts: HostFacts, request: JobRequest, fitting: JobRequest) -> Iterator[Decision]:
    asked, settings = request.settings, fitting.settings
    if not isinstance(asked, TrainSettings) or not isinstance(settings, TrainSettings) or settings.decode == "gpu":
        return
    forced = settings.decode_again and not asked.decode_again
    reason = "the mosaic window's pictures do not fit into the memory" if forced else "asked for"
    if not settings.decode_again:
        shared = mosaic_window(settings.mosaic_window, request.training_pictures)
        reason = "pictures of the mosaic window stay in memory" if shared else "there is no mosaic window"
    source = facts.memory.source if forced else request.source("decode_again")
    yield Decision(name="decode_again", value=settings.decode_again, source=source, reason=reason, degraded=forced)


def _needs(request: JobRequest, slots: int, workers: int, batch: BatchPlan, ranks: int) -> list[Need]:
    settings = request.settings
    on_gpu = request.device_kind == "gpu"
    process = TRAINER_BYTES[on_gpu]
    if not on_gpu:
        train = isinstance(settings, TrainSettings)
        process += model_bytes(request.model, train=train)
        process += batch.together * picture_bytes(request.model, settings.imgsz, train=train, float32=True)
    needs = [Need(what="trainer", size_bytes=ranks * process, reason=f"{ranks} x {size_text(process)}")]
    if isinstance(settings, DetectSettings):
        return needs
    slot = slot_bytes(batch.batch_size, settings.imgsz)
    needs.append(Need(what="ring", size_bytes=ranks * slots * slot, reason=f"{slots} slots of {size_text(slot)}"))
    if isinstance(settings, TrainSettings):
        val_slot = slot * (VALIDATION_BATCH_FACTOR if on_gpu else 1)
        reason = f"{slots} slots of {size_text(val_slot)}"
        needs.append(Need(what="validation ring", size_bytes=slots * val_slot, reason=reason))
        needs.extend(_window(request, slots * batch.batch_size, ranks))
    loaders = LOADERS_OF_TRAINING if isinstance(settings, TrainSettings) else 1
    count = ranks * loaders * workers
    reason = f"{count} x {size_text(WORKER_BYTES)}"
    needs.append(Need(what="loader processes", size_bytes=count * WORKER_BYTES, reason=reason))
    return needs


def _window(request: JobRequest, samples_at_a_time: int, ranks: int) -> Iterator[Need]:
    """Decoded pictures that mosaics share."""
    settings = request.settings
    assert isinstance(settings, TrainSettings)
    window = mosaic_window(settings.mosaic_window, request.training_pictures)
    if window and not settings.rect and not settings.decode_again and settings.decode != "gpu":
        places = window + WINDOW_LAG + samples_at_a_time
        size = ranks * places * PICTURE_FACTOR * settings.imgsz * settings.imgsz * BYTES_PER_PIXEL
        yield Need(what="mosaic window", size_bytes=size, reason=f"{places} decoded pictures")


def slot_bytes(batch: int, imgsz: int) -> int:
    """Returns the size of one slot of the ring: a batch of uint8 RGB pictures."""
    return batch * imgsz * imgsz * BYTES_PER_PIXEL


def wanted_slots(request: JobRequest) -> int:
    """Returns the number of slots when memory is no question."""
    return getattr(request.settings, "prefetch", None) or RING_SLOTS


def _ring(slots: int, batch: int, request: JobRequest, memory: Budget) -> Decision:
    wanted = wanted_slots(request)
    size = size_text(slots * slot_bytes(batch, request.settings.imgsz))
    fewer = f"{wanted} do not fit beside the rest; " if slots < wanted else ""
    reason = f"{fewer}{size} of anonymous memory, nothing in /dev/shm"
    source = memory.source if slots < wanted else request.source("prefetch")
    return Decision(name="prefetch", value=slots, source=source, reason=reason, degraded=slots < wanted)


def _cache(facts: HostFacts, request: JobRequest, spare: int | None, ranks: int) -> tuple[list[Decision], list[Need]]:
    """Both splits are kept decoded, at most imgsz on the longer side; in memory, as much of them as fits."""
    settings = request.settings
    if not isinstance(settings, TrainSettings):
        return [], []
    source, limit_gb = request.source("cache"), settings.cache_limit_gb
    if settings.cache == "auto":
        return _automatic_cache(request, settings, spare, ranks)
    if settings.cache != "ram":
        reason = DECODED_WHEN_NEEDED if settings.cache == "off" else "asked for"
        return [Decision(name="cache", value=settings.cache, source=source, reason=reason)], []
    asked = None if limit_gb is None else round(limit_gb * GB)
    may_use = min((size for size in (spare, asked) if size is not None), default=None)
    if request.pictures is None or may_use is None:
        unknown = "number of pictures" if request.pictures is None else "available memory"
        decisions = [Decision(name="cache", value="ram", source=source, reason=f"asked for; {unknown} unknown")]
        return decisions if may_use is None else [*decisions, _cache_limit(facts, request, may_use, asked, ranks)], []
    need = _cache_bytes(request.pictures, settings, ranks)
    words = f"{request.pictures} pictures need {size_text(need)}, {size_text(max(0, may_use))} may be used"
    if may_use < LEAST_CACHED_SHARE * need:
        reason = f"off: {words} ({facts.memory.source}); on disk: --cache disk"
        return [Decision(name="cache", value="off", source=source, reason=reason, degraded=True)], []
    if may_use < need:
        words = f"about {may_use / need:.0%} of the pictures: {words} ({facts.memory.source})"
    decision = Decision(name="cache", value="ram", source=source, reason=words, degraded=may_use < need)
    reason = f"{request.pictures} decoded pictures, both splits" if may_use >= need else "as many pictures as fit"
    needs = [Need(what="cache", size_bytes=min(need, may_use), reason=reason)]
    return [decision, _cache_limit(facts, request, may_use, asked, ranks)], needs


def _automatic_cache(
    request: JobRequest, settings: TrainSettings, spare: int | None, ranks: int
) -> tuple[list[Decision], list[Need]]:
    """Pictures of a small data set stay in memory when they fit easily, those of validation up to as many.

    A run that goes on has the cache that it had, if it fits at all: samples stay the same to the last bit.
    """
    source, limit_gb = request.source("cache"), settings.cache_limit_gb
    if request.pictures is None or not is_small(request.training_pictures) or settings.decode != "cpu":
        return [Decision(name="cache", value="off", source=source, reason=DECODED_WHEN_NEEDED)], []
    if request.cache_of_run == "off":
        return [Decision(name="cache", value="off", source=RESUMED, reason=DECODED_WHEN_NEEDED)], []
    kept = min(request.pictures, MOST_KEPT) if limit_gb is None else request.pictures
    need = _cache_bytes(kept, settings, ranks)
    words = f"{kept} decoded pictures, {size_text(need)}"
    share, fit = (1.0, "they fit, as before") if request.cache_of_run == "ram" else (EASILY, "they fit easily")
    if spare is None or need > spare * share:
        reason = f"{words}: not little beside the memory that is left"
        return [Decision(name="cache", value="off", source=source, reason=reason)], []
    if limit_gb is not None and need > limit_gb * GB:
        reason = f"{words}: more than {request.source('cache_limit_gb')}; --cache ram keeps a part of them"
        return [Decision(name="cache", value="off", source=source, reason=reason)], []
    decisions = [Decision(name="cache", value="ram", source=source, reason=f"{words}: {fit}")]
    if kept < request.pictures:
        reason = f"for {kept} of {request.pictures} pictures, those of training first"
        limit = round(need / ranks / GB, 3)
        decisions.append(Decision(name="cache_limit_gb", value=limit, source="automatic", reason=reason))
    return decisions, [Need(what="cache", size_bytes=need, reason=f"{kept} decoded pictures, both splits")]


def _cache_bytes(pictures: int, settings: TrainSettings, ranks: int) -> int:
    return ranks * pictures * settings.imgsz * settings.imgsz * BYTES_PER_PIXEL


def _cache_limit(facts: HostFacts, request: JobRequest, may_use: int, asked: int | None, ranks: int) -> Decision:
    given = may_use == asked
    source = request.source("cache_limit_gb") if given else facts.memory.source
    each = f", divided among {ranks} ranks" if ranks > 1 else ""
    reason = ("asked for" if given else "what the rest leaves of the memory") + each
    return Decision(name="cache_limit_gb", value=round(max(0, may_use) / ranks / GB, 3), source=source, reason=reason)


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
