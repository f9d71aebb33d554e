"""The trainer's side of the loader: asks for batches ahead, and hands them out in order.

with open_loader(LoaderSettings(index=index, imgsz=640, batch_size=16, workers=4, seed=0, mode="train")) as loader:
    for batch in loader.epoch(0):
        ...
        batch.release()
"""

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

import numpy as np
import torch
from torch import Tensor

from yolov9.data.drawing import Drawings
from yolov9.data.failures import LoaderError
from yolov9.data.index import DatasetIndex
from yolov9.data.loader_settings import LoaderPlan, LoaderSettings
from yolov9.data.pinned import PageLock
from yolov9.data.producer import InlineProducer, Producer, Request, ServerProducer
from yolov9.data.ring import Ring, create_ring_memory
from yolov9.data.sample import Fit

__all__ = ["Batch", "Loader", "LoaderError", "LoaderSettings", "open_loader"]


@dataclass(frozen=True)
class Batch:
    """One batch. Pictures and their memory are valid until `release`."""

    epoch: int
    number: int
    """Place in the epoch, of this process."""
    images: Tensor
    """(B, H, W, 3) uint8, RGB, in a slot of the ring (page-locked when `pin` was asked for); (B, 0, 0, 3) where
    `drawings` has what is to be drawn."""
    targets: Tensor
    """(n, 6) float32: place in the batch, class, cx, cy, w, h, normalised. A copy; stays valid."""
    indices: Tensor
    """(B,) int64: number of the (first) picture of each sample in the index."""
    shapes: list[Fit]
    """Validation: original size, scale and border of each picture."""
    mosaics: Tensor
    """(B,) bool: the sample is a mosaic."""
    wait_s: float
    """Seconds that the trainer waited for this batch."""
    drawings: Drawings | None
    """What the device is to draw; None when the pixels are there."""
    _remake: Callable[[int, str], "Batch"] = field(repr=False, compare=False)
    _release: Callable[[], None] = field(repr=False, compare=False)

    def without(self, picture: int, reason: str) -> "Batch":
        """Makes this batch again, in its place, with another picture standing in for one that cannot be decoded.

        Raises:
            LoaderError: there are too many such pictures.
        """
        return self._remake(picture, reason)

    def release(self) -> None:
        """Gives the slot back, to be filled again; once is enough, more do no harm."""
        self._release()


class Loader:
    """Batches of one split. Made by `open_loader`; close it, or use it as a context manager."""

    def __init__(self, settings: LoaderSettings) -> None:
        self._settings = settings
        self._plan = LoaderPlan(settings)
        self._ring_fd = create_ring_memory(self._plan.ring)
        self._ring = Ring(self._plan.ring, self._ring_fd)
        self._lock = PageLock(self._ring.bytes[: self._plan.ring.all_pictures_bytes]) if settings.pin else None
        make = ServerProducer if settings.workers else InlineProducer
        self._producer: Producer = make(settings, self._plan, self._ring, self._ring_fd)
        self._generation = 0
        self._free = list(range(self._plan.ring.slots))
        self._asked: deque[tuple[int, int, Request]] = deque()
        self._coming: Iterator[tuple[int, int]] = iter(())
        repeats = settings.mode == "val" and settings.epochs is not None
        self._keeps = repeats and len(self._plan.batches) <= settings.slots
        """Nothing is random in validation: when all of it fits into the ring, it is made once and stays there."""
        self._kept: set[int] = set()
        """Slots whose batches have been handed out before."""
        self.batches_asked = 0
        """Batches that have been asked for since the loader was opened."""
        self._workers = settings.workers
        self._closed = False

    @property
    def index(self) -> DatasetIndex:
        """The pictures and labels that batches come from."""
        return self._settings.index

    @property
    def batches_per_epoch(self) -> int:
        """Batches of this process in an epoch."""
        return len(self._plan.batches)

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers at this moment."""
        return self._producer.worker_pids()

    @property
    def worker_count(self) -> int:
        """Worker processes that were last asked for."""
        return self._workers

    @property
    def all_prepared(self) -> bool:
        """True when every batch that has been asked for ahead lies ready, so that the workers have nothing to do."""
        return bool(self._asked) and all(self._producer.is_made(request) for _, _, request in self._asked)

    def set_workers(self, count: int) -> None:
        """Changes the number of worker processes, at least 1; no effect on a loader without any."""
        if count < 1:
            raise ValueError(f"{count} workers; at least 1 is needed")
        self._workers = count
        self._producer.set_workers(count)

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[Batch]:
        """Yields the batches of an epoch in order.

        Args:
            epoch: counted from 0; it decides the order, every random number, and whether mosaic is on.
            start_batch: first batch to yield, for a run that goes on in mid-epoch.

        Raises:
            LoaderError: too many pictures cannot be read, workers keep dying, or a worker had an internal error.
        """
        self._producer.set_workers(self._workers)
        if not self._continues(epoch, start_batch):
            self._restart(epoch, start_batch)
        try:
            for number in range(start_batch, self.batches_per_epoch):
                self._ask_ahead()
                yield self._next(epoch, number)
        finally:
            if self._settings.mode == "val" and not self._closed:
                # Until the next validation the CPUs belong to the workers of the training loader.
                with contextlib.suppress(LoaderError):
                    self._producer.set_workers(0)

    def close(self) -> None:
        """Ends all processes and gives the memory back once no batch uses it."""
        if self._closed:
            return
        self._closed = True
        self._producer.close()
        if self._lock is not None:
            self._lock.release()
        os.close(self._ring_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _continues(self, epoch: int, start_batch: int) -> bool:
        """True when what has been asked for ahead begins with this batch."""
        return bool(self._asked) and self._asked[0][:2] == (epoch, start_batch)

    def _restart(self, epoch: int, start_batch: int) -> None:
        self._generation += 1
        self._producer.cancel(self._generation)
        self._free.extend(request.slot for _, _, request in self._asked)
        self._asked.clear()
        self._kept.clear()
        self._coming = self._from(epoch, start_batch)

    def _from(self, epoch: int, start_batch: int) -> Iterator[tuple[int, int]]:
        """All batches from this one on, over the ends of epochs; validation is the same each time."""
        yield from ((epoch, batch) for batch in range(start_batch, self.batches_per_epoch))
        last, same = self._settings.epochs, self._settings.mode == "val"
        for later in range(epoch + 1, epoch + 1 if last is None or self._keeps else last):
            yield from ((epoch if same else later, batch) for batch in range(self.batches_per_epoch))

    def _ask_ahead(self) -> None:
        while self._free and (coming := next(self._coming, None)) is not None:
            epoch, number = coming
            height, width = self._plan.shape_of(epoch, number)
            positions = self._plan.batches.positions(number)
            request = Request(self._free.pop(), self._generation, epoch, height, width, positions)
            self._asked.append((epoch, number, request))
            self._producer.make(request)
            self.batches_asked += 1

    def _next(self, epoch: int, number: int) -> Batch:
        if not self._asked:
            raise RuntimeError(f"all {self._plan.ring.slots} batches are in use: call Batch.release() first")
        _, _, request = self._asked[0]
        batch = self._awaited(epoch, number, request)
        self._asked.popleft()
        return batch

    def _awaited(self, epoch: int, number: int, request: Request) -> Batch:
        begun = time.perf_counter()
        if request.slot not in self._kept:
            self._producer.wait(request)
        return self._batch(epoch, number, request, time.perf_counter() - begun)

    def _batch(self, epoch: int, number: int, request: Request, wait_s: float) -> Batch:
        count, slot = len(request.positions), request.slot
        records = self._ring.records(slot)[:count]
        rows = np.zeros((int(records["labels"].sum()), 6), np.float32)
        start = 0
        for row, labels in enumerate(records["labels"].tolist()):
            rows[start : start + labels, 0] = row
            rows[start : start + labels, 1:] = self._ring.labels(slot, row)[:labels]
            start += labels
        height, width = (0, 0) if self._settings.draw_on_device else (request.height, request.width)
        drawings = None
        if self._settings.draw_on_device:
            rooms = [self._ring.room(slot, row) for row in range(count)]
            drawings = Drawings(rooms, (request.height, request.width))
        release = self._releaser(epoch, number, request)
        columns = (records[name].tolist() for name in ("original_hw", "ratio_hw", "pad_wh"))
        return Batch(
            epoch=epoch,
            number=number,
            images=torch.from_numpy(self._ring.pictures(slot, count, height, width)),
            targets=torch.from_numpy(rows),
            indices=torch.from_numpy(records["picture"].copy()),
            shapes=[Fit(*(tuple(value) for value in values)) for values in zip(*columns, strict=True)],
            mosaics=torch.from_numpy(records["mosaic"] != 0),
            wait_s=wait_s,
            drawings=drawings,
            _remake=self._remaker(epoch, number, request, release),
            _release=release,
        )

    def _remaker(
        self, epoch: int, number: int, request: Request, release: Callable[[], None]
    ) -> Callable[[int, str], Batch]:
        def remake(picture: int, reason: str) -> Batch:
            self._producer.leave_out(picture, reason)
            self._producer.make(request)
            return replace(self._awaited(epoch, number, request), _release=release)

        return remake

    def _releaser(self, epoch: int, number: int, request: Request) -> Callable[[], None]:
        held = [request.slot]

        def release() -> None:
            if not held or self._closed:
                return
            slot = held.pop()
            if self._keeps and request.generation == self._generation:
                self._kept.add(slot)
                self._asked.append((epoch, number, request))
                return
            self._free.append(slot)
            self._ask_ahead()

        return release


def open_loader(settings: LoaderSettings) -> Loader:
    """Starts a loader: its shared memory and, with workers, its server process."""
    return Loader(settings)
