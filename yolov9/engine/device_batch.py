"""Brings batches from the loader's memory to the device while the device works on the batch before."""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from yolov9.config.picture_size import LARGEST_SCALE, STRIDE, rounded_size
from yolov9.data.loader import Batch
from yolov9.engine.jpeg_decoder import UndecodableError
from yolov9.engine.sample_painter import SamplePainter
from yolov9.loss import pack_targets

GREY_LEVELS = 255.0
Brought = TypeVar("Brought")


@dataclass(frozen=True)
class DeviceBatch:
    """One micro-batch as the model and the loss take it."""

    images: Tensor
    """(B, 3, H, W), float, 0 to 1, channels last in memory."""
    targets: Tensor
    """(B, M, 5) class, cx, cy, w, h, normalised, padded with class -1."""
    rows: Tensor
    """The same targets as (n, 6) rows image, class, cx, cy, w, h, on the CPU."""


@dataclass(frozen=True)
class MultiScale:
    """Picture size of each iteration between half and one and a half times the usual one."""

    imgsz: int
    seed: int

    def size(self, iteration: int) -> int:
        """Longer side in pixels; a function of seed and iteration, so the same on all ranks and after a resume."""
        generator = random.Random(f"{self.seed} {iteration}")
        return generator.randrange(self.imgsz // 2, int(self.imgsz * LARGEST_SCALE) + STRIDE) // STRIDE * STRIDE

    def apply(self, images: Tensor, iteration: int) -> Tensor:
        """Resizes a batch; the shape of rectangular batches is kept up to the stride."""
        factor = self.size(iteration) / max(images.shape[2:])
        if factor == 1:
            return images
        size = [rounded_size(side * factor) for side in images.shape[2:]]
        return functional.interpolate(images, size=size, mode="bilinear", align_corners=False)


def to_unit_range(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Turns (B, H, W, 3) uint8 pictures into (B, 3, H, W) floats from 0 to 1 without moving a pixel in memory.

    Whole numbers up to 255 are exact in bf16 and fp16, so dividing there rounds once, like dividing before converting.
    """
    return images.permute(0, 3, 1, 2).to(dtype).div_(GREY_LEVELS)


class DeviceFeed:
    """Iterates over batches on the device; on a GPU they are copied on a stream of their own, beside the step before.

    Args:
        device: where the batches go.
        dtype: float type of the pictures: that of the forward pass.
        make_room: gives memory back that can be done without; called when a batch does not fit.
        painter: draws the pictures of batches that come without.
    """

    def __init__(
        self,
        device: torch.device,
        dtype: torch.dtype,
        make_room: Callable[[], None] = lambda: None,
        painter: SamplePainter | None = None,
    ) -> None:
        self.device = device
        self.dtype = dtype
        self._make_room = make_room
        self._painter = painter
        self.wait_s = 0.0
        """Time that the trainer has waited for the loader so far."""
        self._stream = _stream(device) if device.type == "cuda" else None

    def __call__(self, batches: Iterable[Batch]) -> Iterator[DeviceBatch]:
        """Yields each batch in order and gives its slot back to the loader once it is copied."""
        if self._stream is None:
            for batch in batches:
                yield _with_stand_ins(batch, self._on_cpu)
            return
        copying: tuple[Batch, torch.cuda.Event] | None = None
        for batch in batches:
            if copying is not None:
                _release(*copying)
            on_device, copied = _with_stand_ins(batch, self._copy_or_make_room)
            copying = batch, copied
            self.wait_s += batch.wait_s
            yield on_device
        if copying is not None:
            _release(*copying)

    def _on_cpu(self, batch: Batch) -> DeviceBatch:
        images = to_unit_range(self._pictures(batch), self.dtype)
        rows = batch.targets.clone()
        self.wait_s += batch.wait_s
        batch.release()
        return DeviceBatch(images, pack_targets(rows, len(images)), rows)

    def _pictures(self, batch: Batch) -> Tensor:
        """Returns (B, H, W, 3) uint8 on the device."""
        if batch.drawings is None:
            return batch.images.to(self.device, non_blocking=True)
        assert self._painter is not None, "a loader of drawings comes with a painter"
        return self._painter(batch.drawings)

    def _copy_or_make_room(self, batch: Batch) -> tuple[DeviceBatch, torch.cuda.Event]:
        assert self._stream is not None, "on a GPU"
        with suppress(torch.OutOfMemoryError):
            return self._start_copy(batch, self._stream)
        self._make_room()
        return self._start_copy(batch, self._stream)

    def _start_copy(self, batch: Batch, stream: torch.cuda.Stream) -> tuple[DeviceBatch, torch.cuda.Event]:
        rows = batch.targets.clone()
        packed = pack_targets(rows, len(batch.images)).pin_memory()
        copied, begun = _event(), time.perf_counter()
        with torch.cuda.stream(stream):
            raw = self._pictures(batch)
            targets = packed.to(self.device, non_blocking=True)
            copied.record(stream)
            images = to_unit_range(raw, self.dtype)
        current = torch.cuda.current_stream(self.device)
        if batch.drawings is not None and current.query():
            # The host decoded while the device had nothing else to do: for how much of the time, nobody knows.
            self.wait_s += time.perf_counter() - begun
        current.wait_stream(stream)
        images.record_stream(current)
        targets.record_stream(current)
        return DeviceBatch(images, targets, rows), copied


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # not annotated in torch


def _event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]  # not annotated in torch


def _with_stand_ins(batch: Batch, bring: Callable[[Batch], Brought]) -> Brought:
    """Brings a batch to the device, made again without pictures that turn out not to be decodable."""
    while True:
        try:
            return bring(batch)
        except UndecodableError as error:
            batch = batch.without(error.picture, error.reason)


def _release(batch: Batch, copied: torch.cuda.Event) -> None:
    """Waits for a copy that was started a step ago, which has ended long before, and gives the slot back."""
    copied.synchronize()
    batch.release()
