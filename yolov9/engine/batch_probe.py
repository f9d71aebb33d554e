"""Measures what a training step of a given batch takes on this GPU, and chooses the micro-batch by it.

A copy of the model is trained for a few steps on random pictures and thrown away, so that the run itself starts as if
nothing had happened; random number generators are put back. A step is the real one: forward, loss, backward, CUDA
graph, update, average, with the largest pictures and the most boxes that the run can meet, while the batches that are
loaded at a time lie on the GPU. cuDNN does not search for kernels, which would take longer than everything else.
"""

import copy
import time
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from yolov9.config.loader_memory import MIXED_SAMPLES, MOSAIC_PICTURES, VALIDATION_BATCH_FACTOR
from yolov9.config.picture_size import LARGEST_SCALE, rounded_size
from yolov9.config.recipe import Recipe
from yolov9.config.settings import TrainSettings
from yolov9.data import DatasetIndex
from yolov9.engine.average_judge import AverageJudge
from yolov9.engine.batch_finder import DoesNotFit, FoundBatch, Limits, Probe, find_batch
from yolov9.engine.distributed import Ranks
from yolov9.engine.gpu_memory import gigabytes, memory_budget_bytes
from yolov9.engine.out_of_memory import free_caches, is_out_of_memory, no_room
from yolov9.engine.random_targets import random_rows
from yolov9.engine.run_context import RunContext
from yolov9.engine.step_setup import StepParts, make_step
from yolov9.logs import LOG
from yolov9.loss import pack_targets
from yolov9.model import DetectionModel

BATCHES_ON_DEVICE = 2
"""The batch that is worked on, and the next one that is copied meanwhile."""
VALIDATION_PICTURES = 2
"""Least pictures that validation looks at together, beside the memory of the training's CUDA graphs."""


@dataclass(frozen=True)
class BatchChoice:
    """The micro-batch of a run and how it came about."""

    found: FoundBatch
    budget_bytes: int
    validation: int
    """Pictures that validation looks at together."""
    seconds: float

    def as_dict(self) -> dict[str, object]:
        """Returns plain values for plan.json."""
        found = self.found
        return {
            "micro_batch": found.pictures,
            "predicted_bytes": found.predicted_bytes,
            "measured_bytes": found.measured_bytes,
            "budget_bytes": self.budget_bytes,
            "validation_batch": self.validation,
            "reason": found.reason,
            "seconds": round(self.seconds, 2),
            "probes": [vars(probe) for probe in found.probes],
        }


def choose_micro_batch(
    context: RunContext, model: DetectionModel, index: DatasetIndex, *, largest: bool
) -> BatchChoice:
    """Finds the micro-batch for the memory that is free now, within this job's share.

    Args:
        context: of the run; its batch is what is loaded at a time.
        model: on the CPU; it is not changed.
        index: training pictures; they decide the most boxes of a picture.
        largest: as many pictures as fit, also where fewer are as fast.

    Raises:
        NoRoomError: one picture does not fit.
    """
    device, begun = context.precision.device, time.monotonic()
    with torch.random.fork_rng(devices=[device]):
        free_caches(device)
        budget = memory_budget_bytes(device, context.settings.gpu_share)
        probes = _Probes(context, model, most_boxes(index, context.settings, context.recipe))
        try:
            each_bytes = probes.validation_bytes()
            room = max(0, budget - VALIDATION_PICTURES * each_bytes)
            found = find_batch(probes.measure, Limits(room, context.batch, largest, probes.held_bytes()))
        except DoesNotFit:
            words = f"{gigabytes(budget)} are free for this job"
            raise no_room(words, device, f"one picture of {probes.side} px") from None
        finally:
            probes.close()
            free_caches(device)
    left = budget - found.measured_bytes
    validation = min(VALIDATION_BATCH_FACTOR * context.batch, max(1, left // max(1, each_bytes)))
    choice = BatchChoice(found, budget, validation, time.monotonic() - begun)
    LOG.info(
        "micro-batch %d: %s; %s measured (%s predicted) of %s, %d measurements in %.1f s",
        found.pictures,
        found.reason,
        gigabytes(found.measured_bytes),
        gigabytes(found.predicted_bytes),
        gigabytes(budget),
        len(found.probes),
        choice.seconds,
    )
    return choice


def most_boxes(index: DatasetIndex, settings: TrainSettings, recipe: Recipe) -> int:
    """Boxes of the most crowded sample: a blend of two mosaics of the most crowded pictures of the data set."""
    counts = np.sort(np.diff(index.label_offsets))[::-1]
    pictures = 1 if settings.rect or not recipe.mosaic else MOSAIC_PICTURES * (MIXED_SAMPLES if recipe.mixup else 1)
    copies = 2 if recipe.copy_paste else 1
    return max(1, int(counts[:pictures].sum()) * copies)


def of_one_rank(context: RunContext) -> RunContext:
    """What a step is made from that takes as much memory and meets no other rank: joint normalisation runs operation
    by operation, without graphs, as the plain step does."""
    settings = context.settings
    joint = settings.sync_bn and context.ranks.world > 1
    return replace(context, settings=replace(settings, plain_step=True)) if joint else context


class _Probes:
    """A copy of the model that is trained and thrown away."""

    def __init__(self, context: RunContext, model: DetectionModel, boxes: int) -> None:
        settings, self._precision = context.settings, context.precision
        scale = LARGEST_SCALE if settings.multi_scale else 1.0
        self.side = rounded_size(settings.imgsz * scale)
        self._loaded, self._device = context.batch, context.precision.device
        self._parts: StepParts | None = make_step(of_one_rank(context), copy.deepcopy(model), Ranks(), search=False)
        self._judge: AverageJudge | None = AverageJudge(self._parts.ema.model, self._precision)
        self._table = self._targets(boxes)
        # What is loaded lies on the GPU in the size of the loader; multi-scale resizes parts of it.
        shape = (BATCHES_ON_DEVICE * context.batch, settings.imgsz, settings.imgsz, 3)
        pictures = torch.rand(shape, dtype=self._precision.dtype, device=self._device)
        self._loaded_pictures: Tensor | None = pictures.permute(0, 3, 1, 2)

    def measure(self, pictures: int) -> Probe | None:
        """Trains on a batch of so many pictures: all that is loaded, or a part of it."""
        assert self._parts is not None, "not closed"
        step = self._parts.step
        self._forget()
        try:
            images = self._pictures(pictures)
            targets = self._table[:1].expand(pictures, -1, -1).contiguous()
            whole = partial(step.gradient.add, size=pictures)
            add = whole if pictures == self._loaded else step.gradient.add_as_part
            for _ in range(2):  # as it is, then captured
                add(images, targets)
            torch.cuda.synchronize(self._device)
            begun = time.perf_counter()
            add(images, targets)
            torch.cuda.synchronize(self._device)
            seconds = time.perf_counter() - begun
            step.update()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return None
        return Probe(pictures, torch.cuda.max_memory_reserved(self._device), seconds)

    def held_bytes(self) -> int:
        """Memory that is held before any picture goes through the network."""
        self._forget()
        return torch.cuda.memory_allocated(self._device)

    @torch.inference_mode()
    def validation_bytes(self) -> int:
        """Memory of one picture in validation.

        Raises:
            DoesNotFit: it is more than there is.
        """
        assert self._judge is not None, "not closed"
        self._judge.update()
        self._forget()  # What folding has left cached would be taken for nothing.
        before = torch.cuda.memory_reserved(self._device)
        shape = (VALIDATION_PICTURES, self.side, self.side, 3)
        try:
            self._judge.predict(torch.zeros(shape, dtype=torch.uint8, device=self._device))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise DoesNotFit from None
        return (torch.cuda.max_memory_reserved(self._device) - before) // VALIDATION_PICTURES

    def close(self) -> None:
        """Gives all memory back."""
        self._parts = self._judge = self._loaded_pictures = None
        self._table = self._table[:0].cpu()

    def _forget(self) -> None:
        assert self._parts is not None, "not closed"
        self._parts.step.gradient.forget()
        free_caches(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)

    def _pictures(self, count: int) -> Tensor:
        assert self._loaded_pictures is not None, "not closed"
        if self._loaded_pictures.shape[2] == self.side:
            return self._loaded_pictures[:count]
        shape = (count, self.side, self.side, 3)
        return torch.rand(shape, dtype=self._precision.dtype, device=self._device).permute(0, 3, 1, 2)

    def _targets(self, boxes: int) -> Tensor:
        """Table of one picture with so many boxes, padded as a batch with such a picture is."""
        return pack_targets(random_rows(1, boxes, classes=1), 1).to(self._device)
