"""Decides whether decoded pictures are kept from epoch to epoch, and how many."""

from entrypoint.host import HostFacts
from entrypoint.plan.decision import Decision, Need
from entrypoint.request import JobRequest
from entrypoint.units import size_text
from yolov9.config.loader_memory import BYTES_PER_PIXEL
from yolov9.config.settings import TrainSettings
from yolov9.config.small_data import MOST_PICTURES, is_small
from yolov9.engine.plan_record import RESUMED

EASILY = 0.5
"""Share of the memory that is left, up to which decoded pictures are kept without being asked for."""
MOST_KEPT = 2 * MOST_PICTURES
"""Pictures of both splits that are kept without being asked for."""
DECODED_WHEN_NEEDED = "pictures are decoded when they are needed"
LEAST_CACHED_SHARE = 0.1
"""When less of the pictures fits, keeping them decoded saves too little to be worth the memory."""
GB = 1e9


def decide_cache(
    facts: HostFacts, request: JobRequest, spare: int | None, ranks: int
) -> tuple[list[Decision], list[Need]]:
    """Returns the decisions about `--cache`, and the memory that it takes; none for other commands than `train`.

    Both splits are kept decoded, at most imgsz on the longer side; in memory, as much of them as fits.

    Args:
        facts: where the memory's limit comes from.
        request: settings, and how many pictures there are.
        spare: bytes of main memory that everything else leaves; None: unknown.
        ranks: trainer processes, each of which keeps the pictures.
    """
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
