"""What a job takes from main memory, part by part, with so many slots of the ring and so many loader processes."""

from collections.abc import Iterator
from dataclasses import dataclass

from entrypoint.plan.batch import BatchPlan
from entrypoint.plan.decision import Need
from entrypoint.plan.memory_model import model_bytes, picture_bytes
from entrypoint.request import JobRequest
from entrypoint.units import GIB, MIB, size_text
from yolov9.config.loader_memory import BYTES_PER_PIXEL, PICTURE_FACTOR, VALIDATION_BATCH_FACTOR, WINDOW_LAG
from yolov9.config.settings import DetectSettings, TrainSettings
from yolov9.config.small_data import mosaic_window

LOADERS_OF_TRAINING = 2
"""Training and validation each have their own loader processes; one set idles while the other works."""
WORKER_BYTES = 120 * MIB
"""A loader process: numpy and OpenCV (about 60 MiB private) and the pictures it holds decoded."""
TRAINER_BYTES = {True: 2 * GIB, False: 600 * MIB}
"""The trainer process with PyTorch loaded, with and without CUDA."""


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """All that a job holds in main memory, but for decoded pictures that are kept from epoch to epoch."""

    request: JobRequest
    batch: BatchPlan
    ranks: int
    on_gpu: bool
    slots: int
    """Of each rank's ring."""
    workers: int
    """Loader processes of a rank, of each of its loaders."""

    @property
    def total_bytes(self) -> int:
        """Sum of all parts."""
        return sum(need.size_bytes for need in self.needs())

    @property
    def slot_bytes(self) -> int:
        """One slot of the ring: a batch of pictures."""
        return self.batch.batch_size * self.request.settings.imgsz**2 * BYTES_PER_PIXEL

    def needs(self) -> Iterator[Need]:
        """Yields the parts."""
        settings = self.request.settings
        yield self._trainer()
        if isinstance(settings, DetectSettings):
            return
        yield self._ring("ring", self.slot_bytes, self.ranks)
        loaders = 1
        if isinstance(settings, TrainSettings):
            yield self._ring("validation ring", self.slot_bytes * (VALIDATION_BATCH_FACTOR if self.on_gpu else 1), 1)
            yield from self.window()
            loaders = LOADERS_OF_TRAINING
        count = self.ranks * loaders * self.workers
        reason = f"{count} x {size_text(WORKER_BYTES)}"
        yield Need(what="loader processes", size_bytes=count * WORKER_BYTES, reason=reason)

    def window(self) -> Iterator[Need]:
        """Yields the decoded pictures that mosaics share, where there are such."""
        settings = self.request.settings
        if (
            not isinstance(settings, TrainSettings)
            or settings.rect
            or settings.decode_again
            or settings.decode == "gpu"
        ):
            return
        window = mosaic_window(settings.mosaic_window, self.request.training_pictures)
        if window:
            places = window + WINDOW_LAG + self.slots * self.batch.batch_size
            size = self.ranks * places * PICTURE_FACTOR * settings.imgsz**2 * BYTES_PER_PIXEL
            yield Need(what="mosaic window", size_bytes=size, reason=f"{places} decoded pictures")

    def _trainer(self) -> Need:
        settings, model = self.request.settings, self.request.model
        process = TRAINER_BYTES[self.on_gpu]
        if not self.on_gpu:
            train = isinstance(settings, TrainSettings)
            process += model_bytes(model, train=train)
            process += self.batch.together * picture_bytes(model, settings.imgsz, train=train, float32=True)
        return Need(what="trainer", size_bytes=self.ranks * process, reason=f"{self.ranks} x {size_text(process)}")

    def _ring(self, what: str, slot_bytes: int, rings: int) -> Need:
        reason = f"{self.slots} slots of {size_text(slot_bytes)}"
        return Need(what=what, size_bytes=rings * self.slots * slot_bytes, reason=reason)
