"""Weight gradients in half precision, added to the float32 ones all at once at the end of a pass.

cuDNN returns the gradient of each weight in half precision, in memory of its own. One conversion and addition for each
is a small kernel for each convolution. Here they are copied together, many in one kernel, to a vector that is laid out
like the flat gradients (`yolov9.engine.flat`), and two kernels at the end of the pass add that vector and empty it.
The copies are PyTorch's own for lists of tensors, which hands addresses over as arguments: a graph may capture them.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from yolov9.ops.stream import current_stream

COPIED_TOGETHER = 32
"""Gradients of one stream that are copied by one kernel: as many as are held back at the most. A launch of PyTorch's
takes 64 pairs of tensors."""


def add_at_once(gradient: Tensor, weight: Tensor) -> None:
    """Adds the gradient of a weight, of any type and memory order, to its `.grad` on the current stream."""
    _gradient_of(weight).add_(gradient)


@dataclass
class HalfGradients:
    """Collects weight gradients during one pass; `add_up` ends it."""

    _waiting: dict[int, tuple[list[Tensor], list[Tensor]]] = field(default_factory=dict)
    """By stream: gradients, and where they go."""
    _put: set[int] = field(default_factory=set)
    """Addresses in vectors that a gradient of this pass is for."""
    _again: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Second gradients of weights that are used more than once, and these weights."""
    _vectors: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """By address: vectors in half precision that are written to, and the float32 gradients that they are added to."""

    def put(self, gradient: Tensor, weight: Tensor) -> None:
        """Takes the gradient of a weight, on the current stream.

        Args:
            gradient: in half precision, in memory that nothing else writes to before the end of the pass.
            weight: has `.grad` and, where it lies in flat memory, a `half_gradient` with the same strides.
        """
        half = getattr(weight, "half_gradient", None)
        if half is None or not _same_memory_order(gradient, half):
            add_at_once(gradient, weight)
        elif half.data_ptr() in self._put:
            self._again.append((gradient, weight))
        else:
            self._put.add(half.data_ptr())
            self._vectors.setdefault(half.untyped_storage().data_ptr(), (_whole(half), _whole(_gradient_of(weight))))
            gradients, places = self._waiting.setdefault(current_stream(gradient.device), ([], []))
            gradients.append(_in_a_row(gradient))
            places.append(_in_a_row(half))
            if len(gradients) == COPIED_TOGETHER:
                self._copy(current_stream(gradient.device))

    def add_up(self) -> None:
        """Adds everything to the float32 gradients; the current stream has waited for all others."""
        for stream in list(self._waiting):
            self._copy(stream)
        if self._put:
            for half, gradients in self._vectors.values():
                gradients.add_(half)
                half.zero_()
        for gradient, weight in self._again:
            add_at_once(gradient, weight)
        self._forget()

    def drop(self) -> None:
        """Forgets what a pass that failed has left."""
        self._forget()
        for half, _ in self._vectors.values():
            half.zero_()

    def _copy(self, stream: int) -> None:
        gradients, places = self._waiting.pop(stream)
        torch._foreach_copy_(places, gradients)

    def _forget(self) -> None:
        self._waiting.clear()
        self._put.clear()
        self._again.clear()


def _gradient_of(weight: Tensor) -> Tensor:
    assert weight.grad is not None, "parameters with a compute copy have their gradient from the start"
    return weight.grad


def _same_memory_order(a: Tensor, b: Tensor) -> bool:
    """Tells whether two dense tensors of one shape have their elements in the same order in memory."""
    steps = zip(a.shape, a.stride(), b.stride(), strict=True)
    return a.shape == b.shape and all(size == 1 or step == other for size, step, other in steps)


def _in_a_row(tensor: Tensor) -> Tensor:
    return tensor.as_strided((tensor.numel(),), (1,))


def _whole(tensor: Tensor) -> Tensor:
    """Returns all of the memory that a tensor lies in as a vector."""
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.as_strided((elements,), (1,), 0)
