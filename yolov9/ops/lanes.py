"""Independent parts of a network on CUDA streams of their own.

Most kernels of a small batch fill a part of the GPU only. The auxiliary part of a dual model and its loss, the head of
a level and the layers after it do not wait for each other, so their kernels may run side by side; autograd runs the
backward pass of an operation on the stream of its forward pass. In a CUDA graph the streams become branches that cost
nothing.

A tensor that one stream makes and another reads is reported to the caching allocator, which in a graph then never gives
its memory to anything else. So only few and long-lived tensors should cross.

Weight gradients are work that nothing waits for before the end of the backward pass. They run behind it, each on a
stream beside the one that the rest of the backward pass is on; what they read is held until they are done.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from yolov9.ops.half_gradients import HalfGradients
from yolov9.ops.recompute import is_remembered

AUXILIARY = "auxiliary part"
"""Lane of the auxiliary part of a dual model and of its loss."""
MOST_BEHIND = 16
"""Pieces of work that may be behind at a time. More hold more memory: against 4 this takes 0.4 of 19 GiB with yolov9-s
at batch 64, and a step 1 % less time."""
FEW_BYTES_BEHIND = 500 * 10**6
"""Bytes that they may hold where memory counts more than time: two of the largest pieces of yolov9-s at batch 64, or 16
small ones, which gain the most by it. By calculation 0.1 GiB less at the worst moment than any 4 pieces, and 0.7 GiB
less than any 16."""


@dataclass
class Behind:
    """Pieces of work behind a stream, earliest first: when each is done, and what it reads."""

    most_bytes: float
    pieces: deque[tuple[Any, tuple[Tensor, ...]]] = field(default_factory=deque)

    def add(self, done: Any, inputs: tuple[Tensor, ...]) -> list[Any]:
        """Adds a piece; returns the ends of those that have to be waited for, and lets go of what they read."""
        self.pieces.append((done, inputs))
        late = []
        while len(self.pieces) > MOST_BEHIND or (len(self.pieces) > 1 and self._bytes() > self.most_bytes):
            late.append(self.pieces.popleft()[0])
        return late

    def _bytes(self) -> int:
        return sum(tensor.nbytes for _, inputs in self.pieces for tensor in inputs)


@dataclass
class Lanes:
    """Streams by name; they live as long as the graphs that were captured on them.

    Args:
        device: of all streams.
        most_bytes_behind: bytes that work behind a stream may hold; one piece of work may hold more.
    """

    device: torch.device
    most_bytes_behind: float = math.inf
    _streams: dict[object, torch.cuda.Stream] = field(default_factory=dict)
    _forked: set[object] = field(default_factory=set)
    """Lanes that the current stream has not waited for."""
    _behind: dict[int, Behind] = field(default_factory=dict)
    """By stream that is followed."""
    held: dict[object, list[Tensor]] = field(default_factory=dict)
    """By lane: inputs that must not be given away before somebody has waited for the lane."""
    half_gradients: HalfGradients = field(default_factory=HalfGradients)
    """Weight gradients of the pass, added up when all lanes have been waited for."""

    def fork(self, name: object, *, again: bool = True) -> torch.cuda.Stream:
        """Returns the stream of a lane, which goes on from where the current stream is now.

        Unless `again` is False and the lane has been forked before: then it goes on from where it is itself.
        """
        if not again and name in self._forked:
            return self._streams[name]
        if name not in self._streams:
            self._streams[name] = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]  # not annotated
        self._streams[name].wait_stream(torch.cuda.current_stream(self.device))
        self._forked.add(name)
        return self._streams[name]

    def run_behind(self, work: Callable[[], object], inputs: tuple[Tensor, ...]) -> None:
        """Runs `work`, whose results nobody reads before `wait_for_all`, behind the current stream.

        Args:
            work: launches kernels; memory that it allocates must not be used elsewhere.
            inputs: tensors that it reads and whose memory could be used again before it is done.
        """
        current = torch.cuda.current_stream(self.device)
        lane = self.fork(current.cuda_stream)
        with torch.cuda.stream(lane):
            work()
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]  # not annotated in torch
            done.record(lane)
        behind = self._behind.setdefault(current.cuda_stream, Behind(self.most_bytes_behind))
        for end in behind.add(done, inputs):
            current.wait_event(end)

    def wait_for_all(self) -> None:
        """Lets the current stream wait for every lane that has forked, as the end of a captured pass requires.

        For no other one: in a capture that would be waiting for something outside of the graph, which is an error.
        """
        try:
            for name in self._forked:
                torch.cuda.current_stream(self.device).wait_stream(self._streams[name])
        finally:
            self._forked.clear()
            self._behind.clear()
            self.held.clear()


_active: list[Lanes] = []


@contextmanager
def use_lanes(lanes: Lanes) -> Iterator[None]:
    """Within this context work may fork; at its end, also after an error, the current stream waits for all of it."""
    _active.append(lanes)
    try:
        yield
    except BaseException:
        # Waiting fails in a graph whose capture has failed; the first error is the one to be seen.
        with suppress(RuntimeError):
            lanes.wait_for_all()
        with suppress(RuntimeError):
            lanes.half_gradients.drop()
        raise
    else:
        lanes.wait_for_all()
        lanes.half_gradients.add_up()
    finally:
        _active.pop()


def active_lanes() -> Lanes | None:
    """Returns the lanes of the innermost `use_lanes`, for what a backward pass is to run behind itself."""
    return _active[-1] if _active else None


class Lane:
    """One lane, from the moment it is made until `join`.

    Args:
        name: lanes of different names, and lanes of different streams, run side by side.
        wanted: False keeps everything on the current stream.
        fork: False goes on with the lane of this name where it is, if there is one.

    What runs inside `with lane.run(inputs)` sees everything that the current stream had been given when the lane was
    forked, not what came later.
    """

    def __init__(self, name: str, *, wanted: bool = True, fork: bool = True) -> None:
        self._stream: torch.cuda.Stream | None = None
        self._held: list[Tensor] = []
        if _active and wanted:
            lanes = _active[-1]
            key = name, torch.cuda.current_stream(lanes.device).cuda_stream
            self._stream = lanes.fork(key, again=fork)
            self._held = lanes.held.setdefault(key, [])

    @contextmanager
    def run(self, inputs: Iterable[Tensor]) -> Iterator[None]:
        """Runs what is inside on the lane; `inputs` are the tensors of the caller that it reads."""
        if self._stream is None:
            yield
            return
        for tensor in inputs:
            # What the backward pass makes again is read until `join` only; other inputs until their gradient is done.
            if is_remembered(tensor):
                self._held.append(tensor)
            else:
                tensor.record_stream(self._stream)
        with torch.cuda.stream(self._stream):
            yield

    def join(self, outputs: Iterable[Tensor]) -> None:
        """Lets the current stream wait for the lane; `outputs` are the lane's tensors that are used from here on."""
        if self._stream is None:
            return
        current = torch.cuda.current_stream(self._stream.device)
        current.wait_stream(self._stream)
        self._held.clear()
        for tensor in outputs:
            tensor.record_stream(current)
