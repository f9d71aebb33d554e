"""Forward, loss and backward of a loaded batch: at once, or in parts whose gradients add up to the same.

The loss divides by the sum of soft targets of the whole batch. Parts therefore take two passes: one forward without
gradient that adds up these sums, and one with gradient that divides by them. Only batch normalisation sees the parts,
as it does whenever the micro-batch is another one.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from yolov9.engine.captured import GraphCache, GraphPool
from yolov9.engine.loss_meter import LOSS_NAMES, LossMeter
from yolov9.engine.precision import Precision
from yolov9.loss import DetectionLoss, PixelTargets, WholeBatch, pack_targets
from yolov9.model import DetectionModel
from yolov9.ops.lanes import FEW_BYTES_BEHIND, Lanes, use_lanes
from yolov9.ops.plain import plain_operations
from yolov9.ops.recompute import recompute_activations

MOST_HEADS = 2
"""Auxiliary and main head."""

Resize = Callable[[Tensor], Tensor]
Gradient = Callable[[Tensor, Tensor], Tensor]
"""Takes the images and targets of one micro-batch; the result is a scalar."""


class BatchGradient:
    """Adds gradients of batches to the parameters' and their losses to a meter.

    Args:
        model: in training mode.
        loss: its loss; the total is summed over the pictures, not averaged.
        scaler: multiplies the loss before backward.
        precision: number format of forward pass and loss.
        meter: is given the loss of each batch.
        recompute: rebuild cheap activations in backward instead of keeping them.
        capture: run each batch shape as a CUDA graph from its second time on.
        search: let cuDNN try all its kernels for the first batch shape.
        plain: calculate with plain PyTorch operations on one stream.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: DetectionLoss,
        scaler: torch.amp.GradScaler,
        precision: Precision,
        meter: LossMeter,
        *,
        recompute: bool = False,
        capture: bool = False,
        search: bool = True,
        plain: bool = False,
    ) -> None:
        # The loss takes sides and scores apart: joining them would be a copy, and cutting their gradient up another.
        self._model = model.levels if isinstance(model, DetectionModel) else model
        self._loss, self._scaler = loss, scaler
        self._precision, self._meter = precision, meter
        self._recompute, self._search, self._plain = recompute, search, plain
        half_on_gpu = precision.device.type == "cuda" and precision.dtype != torch.float32
        most_bytes = FEW_BYTES_BEHIND if recompute else math.inf
        self._lanes = Lanes(precision.device, most_bytes) if half_on_gpu and not plain else None
        self._searched: torch.Size | None = None
        self._norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        device = precision.device
        # At one address for as long as this object lives: captured graphs read and write them.
        self._whole = WholeBatch(torch.zeros(MOST_HEADS, device=device), torch.zeros((), device=device))
        self._items = torch.zeros(len(LOSS_NAMES), device=device)
        self._total = torch.zeros((), device=device)
        self.graphs = GraphPool() if capture else None
        """Memory of captured graphs, which those of validation may share: it runs between two batches."""
        runs = (self._add_whole, self._add_scores, self._add_part)
        self._caches = [] if self.graphs is None else [GraphCache(run, self.graphs, "the step") for run in runs]
        whole, scores, part = self._caches or runs
        self._run_whole: Gradient = whole
        self._run_scores: Gradient = scores
        self._run_part: Gradient = part

    def add(self, images: Tensor, targets: Tensor, size: int, resize: Resize | None = None) -> Tensor:
        """Adds the gradient of a batch.

        Args:
            images: (B, 3, H, W), float, 0 to 1.
            targets: table (B, M, 5) or rows (n, 6).
            size: pictures that go through the network at a time.
            resize: applied to pictures right before they go through the network.

        Returns:
            Total loss of the batch, on the device; the next call may overwrite it.
        """
        return self._done(self._add(images, targets, size, resize or _as_they_are))

    def add_as_part(self, images: Tensor, table: Tensor) -> Tensor:
        """Adds the gradient of pictures the way it is added of each part of a batch, to measure what a part takes.

        Args:
            images: (B, 3, H, W), float, 0 to 1.
            table: (B, M, 5) targets.

        Returns:
            Total loss, on the device; the next call may overwrite it.
        """
        return self._done(self._add_parts([(images, table)], _as_they_are))

    def _done(self, total: Tensor) -> Tensor:
        if self.graphs is not None:
            self.graphs.batch_done()
        return total

    def _add(self, images: Tensor, targets: Tensor, size: int, prepare: Resize) -> Tensor:
        if size >= len(images):
            return self._run_whole(prepare(images), targets)
        table = targets if targets.dim() == 3 else pack_targets(targets, len(images))
        return self._add_parts(list(zip(torch.split(images, size), torch.split(table, size), strict=True)), prepare)

    def _add_parts(self, parts: Sequence[tuple[Tensor, Tensor]], prepare: Resize) -> Tensor:
        self._whole.pictures.fill_(sum(len(some) for some, _ in parts))
        for buffer in (self._whole.score_sums, self._items, self._total):
            buffer.zero_()
        for some, their_targets in parts:
            self._run_scores(prepare(some), their_targets)
        for some, their_targets in parts:
            self._total += self._run_part(prepare(some), their_targets)
        self._meter.add(self._items)
        return self._total

    def replays(self, images: Tensor, targets: Tensor, size: int) -> bool:
        """Tells whether this batch runs as captured graphs only, and so takes no more memory."""
        if not self._caches or targets.dim() != 3:
            return False
        whole, scores, part = self._caches
        if size >= len(images):
            return whole.has(images.shape, targets.shape)
        parts = zip(torch.split(images, size), torch.split(targets, size), strict=True)
        shapes = {(some.shape, table.shape) for some, table in parts}
        return all(cache.has(*shape) for cache in (scores, part) for shape in shapes)

    def forget(self) -> bool:
        """Gives the memory of captured graphs back; tells whether there were any."""
        return self.graphs is not None and self.graphs.forget()

    def expect_other_shapes(self) -> None:
        """Forgets what was captured and chosen for the shapes so far: from now on pictures have another size."""
        self.forget()
        self._searched = None

    def _add_whole(self, images: Tensor, targets: Tensor) -> Tensor:
        with self._kernels(images):
            prepared = self._prepare(images, targets)
            with recompute_activations() if self._recompute else nullcontext():
                total, items = self._loss(self._model(images), prepared)
            self._backward(total)
        self._meter.add(items)
        detached: Tensor = total.detach()
        return detached

    @torch.no_grad()
    def _add_scores(self, images: Tensor, targets: Tensor) -> Tensor:
        with self._kernels(images), _statistics_stay(self._norms):
            prepared = self._prepare(images, targets)
            sums = self._loss.score_sums(self._model(images), prepared)
        self._whole.score_sums[: len(sums)] += sums
        return sums.sum()

    def _add_part(self, images: Tensor, targets: Tensor) -> Tensor:
        with self._kernels(images):
            prepared = self._prepare(images, targets)
            with recompute_activations() if self._recompute else nullcontext():
                total, items = self._loss(self._model(images), prepared, self._whole)
            self._backward(total)
        self._items += items
        detached: Tensor = total.detach()
        return detached

    def _prepare(self, images: Tensor, targets: Tensor) -> PixelTargets:
        """Targets as the loss uses them. They are made before the network runs: the auxiliary part's loss starts then
        as soon as that part is done."""
        pictures, _, height, width = images.shape
        return self._loss.prepare(targets, pictures, (height, width))

    def _backward(self, total: Tensor) -> None:
        with torch.autocast(self._precision.device.type, enabled=False):
            self._scaler.scale(total).backward()  # type: ignore[no-untyped-call]  # annotated only in part

    @contextmanager
    def _kernels(self, images: Tensor) -> Iterator[None]:
        # cuDNN tries out all its kernels for one shape, that of the first batch: it takes seconds, which short last
        # batches, rectangular batches and multi-scale would pay again and again.
        if self._searched is None and self._search:
            self._searched = images.shape
        # `enabled` has to be said: left out, this context switches cuDNN off, and a step takes five times as long.
        search = torch.backends.cudnn.flags(enabled=True, benchmark=images.shape == self._searched, allow_tf32=True)
        lanes = nullcontext() if self._lanes is None else use_lanes(self._lanes)
        with search, lanes, plain_operations() if self._plain else nullcontext(), self._precision.autocast():
            yield


@contextmanager
def _statistics_stay(norms: list[nn.modules.batchnorm._BatchNorm]) -> Iterator[None]:
    """Within this context a forward pass normalises with the batch and leaves the running statistics as they are."""
    former = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, former, strict=True):
            norm.momentum = momentum


def _as_they_are(images: Tensor) -> Tensor:
    return images
