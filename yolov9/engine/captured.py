"""CUDA graphs of forward, loss and backward: one launch in place of several thousand."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from yolov9.engine.out_of_memory import is_out_of_memory
from yolov9.logs import LOG

Gradient = Callable[[Tensor, Tensor], Tensor]
"""Adds the gradient of one micro-batch (images, targets) to the parameters' and returns its total loss."""


@contextmanager
def side_stream(device: torch.device) -> Iterator[None]:
    """Runs what is inside on a stream of its own, as capturing requires; nothing changes on the CPU."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # not annotated in torch
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Within this context no unreachable graph is freed, which CUDA answers by failing the capture under way."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True)
class _Shape:
    images: torch.Size
    targets: torch.Size


@dataclass
class _Graph:
    graph: torch.cuda.CUDAGraph
    images: Tensor
    targets: Tensor
    total: Tensor

    def replay(self, images: Tensor, targets: Tensor) -> Tensor:
        self.images.copy_(images, non_blocking=True)
        self.targets.copy_(targets, non_blocking=True)
        self.graph.replay()
        return self.total


@dataclass
class GraphPool:
    """Memory that the graphs of several caches share: they never run at the same time."""

    handle: Any = None


@dataclass
class GraphCache:
    """Runs a gradient function through one CUDA graph per batch shape.

    The first batch of a shape runs as it is, which lets cuDNN choose its kernels and does useful work meanwhile; the
    second one is captured. Everything that the function reads and writes besides its arguments (weights, gradients,
    running statistics, loss sums) must stay at the same address for as long as this object lives.

    All calls must be made on one stream that is not the default stream.
    """

    run: Gradient
    pool: GraphPool = field(default_factory=GraphPool)
    _seen: set[_Shape] = field(default_factory=set)
    _graphs: dict[_Shape, _Graph] = field(default_factory=dict)
    _broken: bool = False

    def __call__(self, images: Tensor, targets: Tensor) -> Tensor:
        """Adds the gradient of a micro-batch.

        Args:
            images: (B, H, W, 3) uint8 or (B, 3, H, W) float on the GPU.
            targets: (B, M, 5) float32 on the GPU.

        Returns:
            Total loss, a scalar on the GPU that the next call overwrites.

        Raises:
            RuntimeError: out of memory, also while capturing; nothing was added then.
        """
        shape = _Shape(images.shape, targets.shape)
        graph = self._graphs.get(shape)
        if graph is not None:
            return graph.replay(images, targets)
        if shape not in self._seen:
            self._seen.add(shape)
            return self.run(images, targets)
        if self._broken:
            return self.run(images, targets)
        try:
            self._graphs[shape] = self._capture(images, targets)
        except RuntimeError as error:
            # Leaving the capture may fail as well, and then hides why it was left.
            cause = error.__context__
            if is_out_of_memory(error):
                raise
            if cause is not None and is_out_of_memory(cause):
                raise torch.OutOfMemoryError(str(cause)) from None
            self._broken = True
            LOG.warning("the step runs without CUDA graphs, slower: %s", str(error).splitlines()[0])
            return self.run(images, targets)
        return self._graphs[shape].replay(images, targets)

    def has(self, images: torch.Size, targets: torch.Size) -> bool:
        """Tells whether batches of these shapes are replayed, which takes no more memory."""
        return _Shape(images, targets) in self._graphs

    def forget(self) -> bool:
        """Gives the memory of all graphs back; tells whether there were any. Caches of one pool forget together."""
        had = bool(self._graphs)
        self._graphs.clear()
        self._seen.clear()
        self.pool.handle = None
        return had

    def _capture(self, images: Tensor, targets: Tensor) -> _Graph:
        held_images, held_targets = images.clone(), targets.clone()
        # Blocks cached by the batch that ran without a graph cannot be used by one.
        torch.cuda.empty_cache()
        if self.pool.handle is None:
            self.pool.handle = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with (
            no_garbage_collection(),
            torch.cuda.graph(graph, pool=self.pool.handle, stream=torch.cuda.current_stream()),
        ):
            total = self.run(held_images, held_targets)
        return _Graph(graph, held_images, held_targets, total)
