"""What a training run asks of its two loaders."""

from yolov9.config.loader_memory import RING_SLOTS, VALIDATION_BATCH_FACTOR
from yolov9.config.small_data import mosaic_window
from yolov9.data import DatasetIndex
from yolov9.data.cache import plan_cache
from yolov9.data.loader import LoaderSettings
from yolov9.engine.gpu_memory import BYTES_PER_GB
from yolov9.engine.run_context import RunContext
from yolov9.engine.schedule import mosaic_off_epoch

VALIDATION_PAD = 0.5
"""Border of rectangular validation batches, in strides; the published scores use it."""


def train_loader_settings(context: RunContext, index: DatasetIndex) -> LoaderSettings:
    """Returns the settings of the loader of training batches of this rank."""
    settings, on_gpu = context.settings, context.precision.device.type == "cuda"
    return LoaderSettings(
        index=index,
        imgsz=settings.imgsz,
        stages=context.stages,
        batch_size=context.batch,
        workers=settings.workers or 0,
        seed=settings.seed,
        recipe=context.recipe,
        mode="train",
        rect=settings.rect,
        slots=settings.prefetch or RING_SLOTS,
        close_mosaic_from=mosaic_off_epoch(settings.epochs, settings.close_mosaic),
        epochs=settings.epochs,
        timeout_s=settings.worker_timeout_s,
        mosaic_window=mosaic_window(settings.mosaic_window, index.summary.found),
        decode_again=settings.decode_again,
        cache=_cache(context),
        cache_limit_bytes=_cache_limit_bytes(context),
        cache_dir=context.environment.cache_dir,
        draw_on_device=context.draws_on_device,
        rank=context.ranks.rank,
        world=context.ranks.world,
        pin=on_gpu and not context.draws_on_device,
    )


def val_loader_settings(context: RunContext, index: DatasetIndex, train_index: DatasetIndex) -> LoaderSettings:
    """Returns the settings of the loader of validation batches: rectangles, nothing random.

    Args:
        context: the run.
        index: validation pictures.
        train_index: training pictures; the cache keeps what it has room for of the others.
    """
    settings, on_gpu = context.settings, context.precision.device.type == "cuda"
    return LoaderSettings(
        index=index,
        imgsz=settings.imgsz,
        batch_size=min(len(index), context.batch * (VALIDATION_BATCH_FACTOR if on_gpu else 1)),
        workers=settings.workers or 0,
        seed=settings.seed,
        recipe=context.recipe,
        mode="val",
        rect=True,
        slots=settings.prefetch or RING_SLOTS,
        pad=VALIDATION_PAD,
        epochs=settings.epochs,
        timeout_s=settings.worker_timeout_s,
        cache=_cache(context),
        cache_limit_bytes=_cache_left_bytes(context, train_index),
        cache_dir=context.environment.cache_dir,
        pin=on_gpu,
    )


def _cache(context: RunContext) -> str:
    """Where decoded pictures are kept; a plan has usually decided, as it knows the memory."""
    return "off" if context.settings.cache == "auto" else context.settings.cache


def _cache_limit_bytes(context: RunContext) -> int | None:
    limit_gb = context.settings.cache_limit_gb
    return None if limit_gb is None else round(limit_gb * BYTES_PER_GB)


def _cache_left_bytes(context: RunContext, train_index: DatasetIndex) -> int | None:
    limit = _cache_limit_bytes(context)
    if limit is None:
        return None
    layout, _ = plan_cache(train_index.sizes, context.settings.imgsz, limit)
    return max(0, limit - layout.total_bytes)
