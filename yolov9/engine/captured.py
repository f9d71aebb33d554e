"""CUDA graphs: one launch in place of several thousand."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from yolov9.engine.out_of_memory import is_out_of_memory
from yolov9.errors import first_line
from yolov9.logs import LOG

Output = TypeVar("Output")


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


Shapes = tuple[torch.Size, ...]


@dataclass
class _Graph(Generic[Output]):
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    output: Output

    def replay(self, inputs: Sequence[Tensor]) -> Output:
        for held, given in zip(self.inputs, inputs, strict=True):
            held.copy_(given, non_blocking=True)
        self.graph.replay()
        return self.output


@dataclass
class GraphPool:
    """Memory that the graphs of several caches share: they never run at the same time.

    What a graph returned has to be used before a graph of another cache runs, which may overwrite it.
    """

    handle: Any = None
    caches: list["GraphCache[Any]"] = field(default_factory=list)

    def batch_done(self) -> None:
        """From now on shapes that were met so far are captured when they are met again.

        Not before: a batch in parts would otherwise keep the graph of one function while it runs another one as it is,
        and needs a quarter more memory in its first time than ever again.
        """
        for cache in self.caches:
            cache.known |= cache.met
            cache.met.clear()

    def forget(self) -> bool:
        """Gives the memory of all graphs back; tells whether there were any."""
        had = any(cache.graphs for cache in self.caches)
        for cache in self.caches:
            cache.graphs.clear()
            cache.known.clear()
            cache.met.clear()
        self.handle = None
        return had


class GraphCache(Generic[Output]):
    """Runs a function through one CUDA graph for each shape of its arguments.

    The first batch of a shape runs as it is, which lets cuDNN choose its kernels and does useful work meanwhile; in the
    next one it is captured. Everything that the function reads and writes besides its arguments (weights, gradients,
    running statistics, loss sums) must stay at the same address for as long as this object lives.

    All calls must be made on one stream that is not the default stream.

    Args:
        run: the function; takes tensors on the GPU.
        pool: memory of the graphs.
        what: the work in words, for messages.
    """

    def __init__(self, run: Callable[..., Output], pool: GraphPool, what: str) -> None:
        self.graphs: dict[Shapes, _Graph[Output]] = {}
        self.known: set[Shapes] = set()
        """Shapes of earlier batches."""
        self.met: set[Shapes] = set()
        """Shapes of this batch that ran as they are."""
        self._run, self._pool, self._what = run, pool, what
        self._broken = False
        pool.caches.append(self)

    def __call__(self, *inputs: Tensor) -> Output:
        """Calls the function.

        Returns:
            What the function returned; the next call may overwrite it.

        Raises:
            RuntimeError: out of memory, also while capturing; nothing was calculated then.
        """
        shapes = tuple(tensor.shape for tensor in inputs)
        graph = self.graphs.get(shapes)
        if graph is not None:
            return graph.replay(inputs)
        if shapes not in self.known:
            self.met.add(shapes)
            return self._run(*inputs)
        if self._broken:
            return self._run(*inputs)
        try:
            self.graphs[shapes] = self._capture(inputs)
        except RuntimeError as error:
            # Leaving the capture may fail as well, and then hides why it was left.
            cause = error.__context__
            if is_out_of_memory(error):
                raise
            if cause is not None and is_out_of_memory(cause):
                raise torch.OutOfMemoryError(str(cause)) from None
            self._broken = True
            LOG.warning("%s runs without CUDA graphs, slower: %s", self._what, first_line(error))
            return self._run(*inputs)
        return self.graphs[shapes].replay(inputs)

    def has(self, *shapes: torch.Size) -> bool:
        """Tells whether batches of these shapes are replayed, which takes no more memory."""
        return shapes in self.graphs

    def _capture(self, inputs: Sequence[Tensor]) -> _Graph[Output]:
        held = tuple(tensor.clone() for tensor in inputs)
        # Blocks cached by the batch that ran without a graph cannot be used by one.
        torch.cuda.empty_cache()
        if self._pool.handle is None:
            self._pool.handle = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with (
            no_garbage_collection(),
            torch.cuda.graph(graph, pool=self._pool.handle, stream=torch.cuda.current_stream()),
        ):
            output = self._run(*held)
        return _Graph(graph, held, output)
