"""What a loader is asked for, and what follows from it: batches, shapes, sizes of the ring. No torch here."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from yolov9.config.loader_memory import MIXED_SAMPLES, MOSAIC_PICTURES, RING_SLOTS
from yolov9.config.recipe import Recipe
from yolov9.config.stages import Stage, size_at
from yolov9.data.drawing import drawing_bytes
from yolov9.data.index import DatasetIndex
from yolov9.data.order import BatchPlan
from yolov9.data.rect import RectBatches, plan_rect_batches
from yolov9.data.ring import RingLayout
from yolov9.data.sample import SampleSettings
from yolov9.data.window import WindowLayout, plan_window


@dataclass(frozen=True, kw_only=True)
class LoaderSettings:
    """Everything that a loader depends on."""

    index: DatasetIndex
    """Pictures and labels."""
    imgsz: int
    """Longer side of pictures in pixels; training samples are squares of that side unless `rect`."""
    batch_size: int
    """Pictures in a batch of this process."""
    stages: tuple[Stage, ...] = ()
    """Sizes of square training samples by epoch, none above `imgsz`; empty: always `imgsz`."""
    workers: int
    """Processes that prepare pictures; 0: this process does it."""
    seed: int = 0
    recipe: Recipe = field(default_factory=Recipe)
    """Augmentation of training samples."""
    mode: Literal["train", "val"] = "train"
    """Training samples are shuffled and augmented; validation samples are not."""
    rect: bool = False
    """Batches of similar aspect ratio, as small as their pictures allow; no shuffling and no mosaic."""
    stride: int = 32
    """Sides of rectangular batches are multiples of this."""
    pad: float = 0.5
    """Extra border of rectangular validation batches, in strides."""
    close_mosaic_from: int | None = None
    """First epoch without mosaic and mixup."""
    epochs: int | None = None
    """Epochs of the run; up to there, the next epoch's batches are prepared while this one ends (or is validated), and
    those of the next validation while the next epoch goes on. None: only what is asked for."""
    rank: int = 0
    world: int = 1
    """Number of this process, and of all trainer processes."""
    slots: int = RING_SLOTS
    """Batches in the ring: prepared, being prepared, or in use."""
    timeout_s: float = 120.0
    """A worker that is longer than this at one sample is replaced."""
    mosaic_window: int = 0
    """Partners of a mosaic come from so many samples made shortly before, to decode less; 0: from all pictures."""
    decode_again: bool = False
    """Their pictures are not kept in memory: the same samples for less memory and more CPU time."""
    cache: str = "off"
    """"off", "ram" or "disk": keep decoded pictures, scaled to at most `imgsz`, for later epochs."""
    cache_dir: Path | None = None
    """Folder of the disk cache and of compiled functions; never the data set's."""
    cache_limit_bytes: int | None = None
    """Most that the cache may take; what does not fit is decoded each time. None: no limit."""
    draw_on_device: bool = False
    """Training: batches hold what is to be drawn, and files that are to be decoded, in place of pixels."""
    pin: bool = False
    """Page-lock the pictures, for asynchronous copies to a CUDA device."""

    def __post_init__(self) -> None:
        if self.cache not in ("off", "ram", "disk"):
            raise ValueError(f"cache = {self.cache!r}; off, ram or disk is needed")
        if self.draw_on_device and (self.mode != "train" or self.cache != "off"):
            raise ValueError("draw_on_device is for training without a cache of decoded pictures")
        if self.mosaic_window < 0:
            raise ValueError(f"mosaic_window = {self.mosaic_window}; at least 0 is needed")
        for name in ("imgsz", "batch_size", "slots", "world", "stride"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}; at least 1 is needed")
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank = {self.rank} is not below world = {self.world}")
        if not len(self.index):
            raise ValueError("the index has no pictures")


class LoaderPlan:
    """What follows from the settings."""

    def __init__(self, settings: LoaderSettings) -> None:
        train = settings.mode == "train"
        self._imgsz, self._stages = settings.imgsz, settings.stages
        self.batches = BatchPlan(len(settings.index), settings.batch_size, settings.rank, settings.world, even=train)
        self.rect = _rect_batches(settings)
        self.order: NDArray[np.int64] | None = None if self.rect is None else self.rect.order
        self.sample = _sample_settings(settings, self.batches.samples)
        self.window: WindowLayout | None = None
        kept = not settings.decode_again and settings.cache == "off" and not settings.draw_on_device
        if settings.mosaic_window and self.sample.mosaic and kept:
            at_a_time = settings.slots * settings.batch_size
            self.window = plan_window(settings.mosaic_window, at_a_time, settings.imgsz)
        self.ring = self._ring_layout(settings)

    def shape_of(self, epoch: int, batch: int) -> tuple[int, int]:
        """Returns height and width of a batch of this process."""
        if self._stages:
            side = size_at(self._stages, epoch)
            return side, side
        if self.rect is None:
            return self._imgsz, self._imgsz
        height, width = self.rect.shapes_hw[self.batches.global_batch(batch)].tolist()
        return height, width

    def _ring_layout(self, settings: LoaderSettings) -> RingLayout:
        areas = [self._imgsz**2] if self.rect is None else self.rect.shapes_hw.prod(axis=1).tolist()
        rows = min(settings.batch_size, self.batches.samples) or 1
        most = int(np.diff(settings.index.label_offsets).max(initial=0))
        copies = 2 if settings.mode == "train" and settings.recipe.copy_paste else 1
        labels = most * (MOSAIC_PICTURES * MIXED_SAMPLES * copies if settings.mode == "train" else 1)
        each = drawing_bytes(settings.imgsz, max(areas)) if settings.draw_on_device else max(areas) * 3
        return RingLayout(slots=settings.slots, rows=rows, picture_bytes=rows * each, labels=max(labels, 1))


def _rect_batches(settings: LoaderSettings) -> RectBatches | None:
    if not settings.rect:
        return None
    # A batch of the whole epoch is what all training processes have at the same time; in validation, what one has.
    together = settings.batch_size * (settings.world if settings.mode == "train" else 1)
    pad = settings.pad if settings.mode == "val" else 0.0
    return plan_rect_batches(settings.index.sizes, together, settings.imgsz, stride=settings.stride, pad=pad)


def _sample_settings(settings: LoaderSettings, samples: int) -> SampleSettings:
    recipe, train = settings.recipe, settings.mode == "train"
    return SampleSettings(
        imgsz=settings.imgsz,
        seed=settings.seed,
        augment=train,
        shuffle=train and not settings.rect,
        close_mosaic_from=settings.close_mosaic_from,
        perspective=(recipe.degrees, recipe.translate, recipe.scale, recipe.shear, recipe.perspective),
        hsv=(recipe.hsv_h, recipe.hsv_s, recipe.hsv_v) if train else (0.0, 0.0, 0.0),
        flipud=recipe.flipud,
        fliplr=recipe.fliplr,
        mosaic=0.0 if settings.rect else recipe.mosaic,
        mixup=recipe.mixup,
        copy_paste=recipe.copy_paste,
        mosaic_window=settings.mosaic_window,
        samples=samples,
        rank=settings.rank,
        world=settings.world,
    )
