"""Decides whether the data set is copied to faster storage for the time of the run, and where to."""

from dataclasses import dataclass, replace

from entrypoint.host.shm import SHM_DIR
from entrypoint.host.storage import FAST_MEDIA, SLOW_MEDIA
from entrypoint.plan.decision import Budget, Decision, Need
from entrypoint.request import JobRequest
from entrypoint.staging.facts import StageSurvey, StageTarget
from entrypoint.units import MIB, size_text
from yolov9.config.settings import TrainSettings

OFF = "off"
FEWEST_EPOCHS = 3
"""The copy itself reads everything once; with fewer epochs it does not pay."""
LITTLE_DATA_BYTES = 64 * MIB
"""So much stays in the kernel's file cache anyway."""
SLOW_BYTES_S = 100e6
"""One reader on a solid-state disk gets several hundred MB/s from small files; rotating disks and network mounts give
5 to 80, and a fast card takes about 100 (1000 pictures a second of 100 KB)."""
KEPT_FREE_BYTES = {True: 64 * MIB, False: 500 * MIB}
"""Left to others: in memory file systems (Docker's whole default for /dev/shm), and on disks."""


@dataclass(frozen=True, kw_only=True)
class StagingPlan:
    """The decision, and both budgets with the copy in them."""

    decisions: tuple[Decision, ...]
    memory: Budget
    shm: Budget


def plan_staging(request: JobRequest, memory: Budget, shm: Budget) -> StagingPlan:
    """Returns the decision about a copy.

    Args:
        request: with what was measured about the data set, if anything was.
        memory: main memory with everything else in it.
        shm: /dev/shm with everything else in it.
    """
    settings = request.settings
    if not isinstance(settings, TrainSettings):
        return StagingPlan(decisions=(), memory=memory, shm=shm)
    asked = settings.stage not in ("auto", OFF)
    source = request.source("stage") if request.was_given("stage") else "automatic"
    why = _no_gain(settings, request.staging)
    if why or request.staging is None:
        decision = Decision(name="stage", value=OFF, source=source, reason=why, degraded=asked and bool(settings.data))
        return StagingPlan(decisions=(decision,), memory=memory, shm=shm)
    refusals = []
    for target in request.staging.targets:
        why = _refusal(request.staging, target, memory, shm, must_be_faster=not asked)
        if not why:
            return _accept(request.staging, target, source, memory, shm)
        refusals.append(f"{target.folder.path}: {why}")
    reason = f"{size_text(request.staging.size_bytes)} of data; " + "; ".join(refusals)
    decision = Decision(name="stage", value=OFF, source=source, reason=reason, degraded=asked)
    return StagingPlan(decisions=(decision,), memory=memory, shm=shm)


def _no_gain(settings: TrainSettings, survey: StageSurvey | None) -> str:
    """Why there is no copy, whatever the place; "" when there may be one."""
    if settings.stage == OFF:
        return "asked for"
    if not settings.data:
        return "the drawn data set lies in a cache folder"
    if survey is None:
        return "the data set was not looked at"
    if survey.problem:
        return survey.problem
    return _does_not_pay(settings, survey) if settings.stage == "auto" else ""


def _does_not_pay(settings: TrainSettings, survey: StageSurvey) -> str:
    if all(source.medium in FAST_MEDIA for source in survey.sources):
        return f"the data set lies on fast storage ({_media(survey)})"
    if settings.epochs < FEWEST_EPOCHS:
        return f"{settings.epochs} epochs; a copy pays from {FEWEST_EPOCHS} on"
    if settings.cache not in ("auto", OFF):
        return f"--cache {settings.cache} reads each file once"
    if survey.size_bytes < LITTLE_DATA_BYTES:
        return f"{size_text(survey.size_bytes)} of data, which the kernel keeps in memory by itself"
    if any(source.medium in SLOW_MEDIA for source in survey.sources):
        return ""
    if survey.read_bytes_s is None:
        return f"how fast the data set can be read is unknown ({_media(survey)})"
    if survey.read_bytes_s >= SLOW_BYTES_S:
        return f"the data set can be read at {size_text(survey.read_bytes_s)}/s, measured"
    return ""


def _refusal(survey: StageSurvey, target: StageTarget, memory: Budget, shm: Budget, *, must_be_faster: bool) -> str:
    """Why a copy cannot lie in this place; "" when it can."""
    if target.problem:
        return target.problem
    if target.folder.writable is False:
        return "not writable"
    if must_be_faster and target.folder.medium not in FAST_MEDIA:
        return f"not known to be faster ({target.folder.medium})"
    if target.holds_copy:
        return ""
    need = survey.footprint_bytes
    if target.free_files is not None and target.free_files < survey.files:
        return f"{survey.files} files needed, {target.free_files} possible"
    kept = KEPT_FREE_BYTES[target.in_memory] + (shm.needed_bytes if target.folder.path == SHM_DIR else 0)
    if target.free_bytes is None:
        return "free space unknown"
    if need + kept > target.free_bytes:
        free = size_text(target.free_bytes)
        return f"{size_text(need)} needed, {free} free of which {size_text(kept)} stay free"
    if target.in_memory:
        return _memory_refusal(need, memory)
    return ""


def _memory_refusal(need: int, memory: Budget) -> str:
    """Files in memory count against the memory limit, whatever the size of their file system."""
    if memory.available_bytes is None:
        return "it takes main memory, and how much of that is available is unknown"
    spare = max(0, memory.available_bytes - memory.needed_bytes)
    if need <= spare:
        return ""
    return f"{size_text(need)} needed, {size_text(spare)} of memory are left beside the job ({memory.source})"


def _accept(survey: StageSurvey, target: StageTarget, source: str, memory: Budget, shm: Budget) -> StagingPlan:
    size = f"{size_text(survey.size_bytes)} in {survey.files} files"
    reason = f"{size} from {_media(survey)} to {target.folder.medium}; removed at the end"
    if target.holds_copy:
        reason = f"a complete copy of {size} is there already"
    else:
        need = Need(what="staged copy", size_bytes=survey.footprint_bytes, reason=f"{size} in {target.folder.path}")
        if target.in_memory:
            memory = replace(memory, needs=(*memory.needs, need))
        if target.folder.path == SHM_DIR:
            shm = replace(shm, needs=(*shm.needs, need))
    decision = Decision(name="stage", value=target.folder.path, source=source, reason=reason)
    return StagingPlan(decisions=(decision,), memory=memory, shm=shm)


def _media(survey: StageSurvey) -> str:
    media = dict.fromkeys(f"{source.medium}, {source.kind or 'unknown file system'}" for source in survey.sources)
    speed = f", measured {size_text(survey.read_bytes_s)}/s" if survey.read_bytes_s is not None else ""
    return " and ".join(media) + speed
