"""Decides micro-batch and accumulation. The recipe decides the optimisation batch."""

from dataclasses import dataclass, replace

from entrypoint.host import Gpu, HostFacts
from entrypoint.plan.decision import Budget, Decision, Need
from entrypoint.plan.memory_model import model_bytes, picture_bytes
from entrypoint.request import JobRequest
from entrypoint.units import size_text
from yolov9.config.gpu_share import OVERHEAD_BYTES
from yolov9.config.picture_size import LARGEST_SCALE
from yolov9.config.settings import FIND_FASTEST, FIND_LARGEST, DetectSettings, TrainSettings
from yolov9.config.stages import parse_growth
from yolov9.errors import ExitCode, UserError

CPU_BATCH = 16
"""Larger batches are not faster on a CPU and take memory."""
VALIDATION_BATCH = 32
"""Usual batch of `val`; larger ones gain little."""
CPU_MEMORY_SHARE = 0.5
"""Share of the available memory that a batch on the CPU may take; the rest is for loader and file pages."""


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """Decisions about the batch, and the GPU memory it takes."""

    decisions: tuple[Decision, ...]
    batch_size: int
    """Pictures that are loaded at a time, of one rank: the loss of all of them is one."""
    micro_batch: int | None = None
    """Pictures that go through the network at a time; None: all that are loaded; FIND_…: measured by the trainer."""
    budget: Budget | None = None

    @property
    def together(self) -> int:
        """Most pictures that go through the network at a time."""
        return self.micro_batch if self.micro_batch and self.micro_batch > 0 else self.batch_size


def decide_batch(
    facts: HostFacts, request: JobRequest, gpus: tuple[Gpu, ...], amp: str, decode_bytes: int = 0
) -> BatchPlan:
    """Returns batch and, for training, accumulation; `decode_bytes` of the GPU's memory go to decoding pictures.

    Raises:
        UserError: not even one picture fits beside what others hold on the GPU, or a batch that ranks cannot share.
    """
    shares = _share_decision(request) if gpus else ()
    if isinstance(request.settings, DetectSettings):
        return BatchPlan(decisions=shares, batch_size=1)
    room, ranks = _room(facts, request, gpus, amp), max(1, len(gpus))
    room = replace(room, fixed_bytes=room.fixed_bytes + decode_bytes, decode_bytes=decode_bytes)
    batch = _micro_batch(request, room, ranks)
    decisions = [*shares, batch, *_accumulation(request, batch.value, ranks)]
    target = next((decision.value for decision in decisions if decision.name == "optimisation_batch"), None)
    loaded, micro_batch = batch.value, None
    if target is not None:
        loaded, micro_batch = _loaded(request, batch.value, target, ranks, on_gpu=room.on_gpu)
        decisions = [_grown(decision, request, loaded * ranks) for decision in decisions]
    return BatchPlan(
        decisions=tuple(decisions),
        batch_size=loaded,
        micro_batch=micro_batch,
        budget=_budget(room, batch.value) if gpus else None,
    )


def _grown(decision: Decision, request: JobRequest, loaded: int) -> Decision:
    """With `--dynamic-accumulate` the pictures of a step follow from those that all ranks load at a time."""
    growth = parse_growth(getattr(request.settings, "dynamic_accumulate", ""), epochs=1)
    if growth is None or decision.name != "optimisation_batch":
        return decision
    reason = f"at the end; {loaded * growth.start} pictures a step at the start, {loaded} are loaded at a time"
    return replace(decision, value=loaded * growth.end, reason=reason)


def _loaded(request: JobRequest, micro_batch: int, target: int, ranks: int, *, on_gpu: bool) -> tuple[int, int | None]:
    """Returns the pictures that a rank loads at a time, and how many of them go through the network together.

    `--batch N` alone is what it is in the published scripts: passes of N pictures, each with a loss of its own, as many
    as make the optimisation batch. In all other cases the pictures of an optimizer step are loaded together, and the
    parts that fit have the gradient of all of them: the machine changes nothing but the time.
    """
    settings = request.settings
    assert isinstance(settings, TrainSettings), "only training accumulates"
    asked = settings.asked_batch
    if request.passes_of_run:
        target = request.passes_of_run
    together = bool(settings.accumulate or request.passes_of_run) or request.was_given("optimisation_batch")
    if asked is None and on_gpu and not settings.accumulate:
        return max(1, round(target / ranks)), FIND_LARGEST if request.was_given("batch_size") else FIND_FASTEST
    loaded = max(micro_batch, round(target / ranks)) if together else (asked or micro_batch * ranks) // ranks
    return loaded, None if loaded == micro_batch else micro_batch


@dataclass(frozen=True, kw_only=True)
class _Room:
    """Memory for pictures on the tightest device."""

    allowed_bytes: int | None
    """What this job may take in all; None when unknown."""
    fixed_bytes: int
    """Model, optimizer, context, decoding."""
    picture_bytes: int
    source: str
    on_gpu: bool
    decode_bytes: int = 0
    """The part of the fixed ones that decoding takes."""

    @property
    def pictures(self) -> int | None:
        if self.allowed_bytes is None:
            return None
        return max(0, (self.allowed_bytes - self.fixed_bytes) // self.picture_bytes)


def _room(facts: HostFacts, request: JobRequest, gpus: tuple[Gpu, ...], amp: str) -> _Room:
    settings = request.settings
    train = isinstance(settings, TrainSettings)
    size = settings.imgsz * (LARGEST_SCALE if isinstance(settings, TrainSettings) and settings.multi_scale else 1)
    picture = picture_bytes(request.model, int(size), train=train, float32=amp == "off")
    weights = model_bytes(request.model, train=train)
    if not gpus:
        available = facts.memory.available_bytes
        allowed = None if available is None else int(available * CPU_MEMORY_SHARE / request.job.jobs)
        return _Room(
            allowed_bytes=allowed, fixed_bytes=weights, picture_bytes=picture, source=facts.memory.source, on_gpu=False
        )
    share = gpu_share(request)
    tightest = min(gpus, key=lambda gpu: min(gpu.free_bytes, gpu.total_bytes * share))
    allowed = int(min(tightest.free_bytes, tightest.total_bytes * share))
    source = f"{size_text(tightest.free_bytes)} free of {size_text(tightest.total_bytes)} on GPU {tightest.index}"
    if share < 1:
        source += f", share {share:g} (a soft limit; MIG and MPS have hard ones)"
    return _Room(
        allowed_bytes=allowed,
        fixed_bytes=weights + OVERHEAD_BYTES,
        picture_bytes=picture,
        source=source,
        on_gpu=True,
    )


def gpu_share(request: JobRequest) -> float:
    """Returns the share of a GPU's memory that this job may take."""
    asked = request.settings.gpu_share
    return asked if asked is not None else 1 / request.job.jobs


def _share_decision(request: JobRequest) -> tuple[Decision, ...]:
    """The share of the GPU's memory, when it is not all of it."""
    share = gpu_share(request)
    if share == 1:
        return ()
    given = request.was_given("gpu_share")
    source = request.source("gpu_share") if given else request.source("jobs")
    reason = "PyTorch is held to it, less what CUDA itself takes; a soft limit, MIG and MPS have hard ones"
    return (Decision(name="gpu_share", value=share, source=source, reason=reason),)


def _micro_batch(request: JobRequest, room: _Room, ranks: int) -> Decision:
    settings = request.settings
    asked: int | None = getattr(settings, "batch_size", None)
    estimate = f"{size_text(room.picture_bytes)} a picture ({request.model or 'unknown model'}, {settings.imgsz} px)"
    if asked is not None and asked > 0:
        return _asked_batch(request, room, asked, ranks, estimate)
    target = _largest(request, ranks, on_gpu=room.on_gpu)
    fits = room.pictures
    if room.on_gpu and fits == 0:
        raise _no_room(request, room, estimate)
    value = _divisor(target, min(target, fits if fits is not None else target))
    if not room.on_gpu:
        limited = fits is not None and value < target
        reason = f"estimate {estimate}" if limited else "larger batches are not faster on a CPU"
        return Decision(name="batch_size", value=value, source=room.source, reason=reason)
    reason = f"{size_text(room.allowed_bytes)} - {size_text(room.fixed_bytes)} fixed, estimate {estimate}"
    reason += (
        f": {fits} fit; {value} divides {target}" if value < target else f": {fits} fit; {value} is all that is used"
    )
    if isinstance(settings, TrainSettings) and not settings.accumulate:
        reason += "; measured when the training starts"
    return Decision(name="batch_size", value=value, source=room.source, reason=reason)


def _largest(request: JobRequest, ranks: int, *, on_gpu: bool) -> int:
    """Largest micro-batch that makes sense: the optimisation batch, shared by ranks and accumulated steps."""
    settings = request.settings
    if not isinstance(settings, TrainSettings):
        return VALIDATION_BATCH if on_gpu else CPU_BATCH
    per_step = settings.optimisation_batch // (ranks * (settings.accumulate or 1))
    return max(1, per_step if on_gpu else min(per_step, CPU_BATCH))


def _divisor(target: int, most: int) -> int:
    """Largest divisor of the target that is not above `most`; 1 when nothing fits."""
    return next((value for value in range(max(1, most), 0, -1) if target % value == 0), 1)


def _asked_batch(request: JobRequest, room: _Room, asked: int, ranks: int, estimate: str) -> Decision:
    """A GPU may try the user's number: a step that runs out of memory is repeated in parts. A CPU may not: the kernel
    would end the whole process, so what does not fit is cut into parts beforehand."""
    if asked % ranks:
        raise UserError(
            found=f"{request.source('batch_size')} over {ranks} GPUs",
            needed=f"a batch that {ranks} GPUs share evenly",
            remedy=f"--batch {max(1, round(asked / ranks)) * ranks}",
        )
    value, source = asked // ranks, request.source("batch_size")
    reason = "asked for" if ranks == 1 else f"{asked} asked for, over {ranks} GPUs"
    if room.pictures is None or value <= room.pictures:
        return Decision(name="batch_size", value=value, source=source, reason=reason)
    need = room.fixed_bytes + value * room.picture_bytes
    why = f"estimate {estimate}, {size_text(need)} in all, {size_text(room.allowed_bytes)} allowed"
    if room.on_gpu:
        reason += f"; may not fit: {why}; a step that runs out of memory is repeated in smaller parts"
        return Decision(name="batch_size", value=value, source=source, reason=reason, degraded=True)
    smaller = _divisor(value, room.pictures)
    reason = f"{value} asked for; {why}; accumulation makes up for it"
    return Decision(name="batch_size", value=smaller, source=room.source, reason=reason, degraded=True)


def _accumulation(request: JobRequest, batch: int, ranks: int) -> list[Decision]:
    """Pictures per optimizer step stay what recipe and user say, whatever the micro-batch."""
    settings = request.settings
    if not isinstance(settings, TrainSettings):
        return []
    asked = settings.asked_batch or batch * ranks
    if settings.accumulate:
        target, source = asked * settings.accumulate, request.source("accumulate")
    else:
        target = max(settings.optimisation_batch, asked)
        source = request.source("optimisation_batch") if request.was_given("optimisation_batch") else "recipe"
        if asked > settings.optimisation_batch:
            source = f"{request.source('batch_size')}, more than the {settings.optimisation_batch} of {source}"
    if settings.dynamic_accumulate:
        source = request.source("dynamic_accumulate")
        reason = f"batches of a step grow, {settings.dynamic_accumulate}"
        return [Decision(name="optimisation_batch", value=target, source=source, reason=reason)]
    count = max(1, round(target / (batch * ranks)))
    over = f" x {ranks} ranks" if ranks > 1 else ""
    reason = f"{batch} x {count}{over} = {batch * count * ranks} pictures a step"
    return [
        Decision(name="accumulate", value=count, source=source, reason=reason),
        Decision(name="optimisation_batch", value=target, source=source, reason="pictures per optimizer step"),
    ]


def _no_room(request: JobRequest, room: _Room, estimate: str) -> UserError:
    return UserError(
        found=f"{room.source}: {size_text(room.allowed_bytes)} for this job",
        needed=f"{size_text(room.fixed_bytes)} fixed and {estimate}",
        remedy="end what holds the GPU's memory (nvidia-smi shows it), a smaller --cfg or --img, or --device cpu",
        exit_code=ExitCode.NO_GPU,
    )


def _budget(room: _Room, batch: int) -> Budget:
    model = room.fixed_bytes - OVERHEAD_BYTES - room.decode_bytes
    reason = "nvJPEG, and decoded pictures for mosaics"
    decoding = [Need(what="decoding", size_bytes=room.decode_bytes, reason=reason)] if room.decode_bytes else []
    needs = (
        Need(what="context and libraries", size_bytes=OVERHEAD_BYTES, reason="outside what PyTorch counts"),
        Need(what="model", size_bytes=model, reason="weights, gradients, momentum, EMA"),
        *decoding,
        Need(
            what="pictures", size_bytes=batch * room.picture_bytes, reason=f"{batch} x {size_text(room.picture_bytes)}"
        ),
    )
    return Budget(resource="GPU memory", needs=needs, available_bytes=room.allowed_bytes, source=room.source)
