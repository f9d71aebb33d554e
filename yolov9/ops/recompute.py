"""Saves memory in training: activations that are cheap to compute again are dropped after use and rebuilt in backward.

A convolution keeps its input for its weight gradient. When that input is the output of `norm_act`, the convolution
output it was made from is kept anyway, and one pass over memory rebuilds it; so it is with what is copied, averaged or
enlarged from such a tensor. Inside `recompute_activations()` autograd therefore stores a recipe in place of such
tensors (and of views of them, such as channel slices).
"""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from yolov9.ops.stream import current_stream

LEAST_BYTES = 24 * 10**6
"""Smaller activations are kept: by calculation 1.2 of 8.7 GiB of tensors (yolov9-s, 640 px, batch 64), and a sixth of
what is read and written to make all of them again, but half of the kernels, which are slow for what they do."""


@dataclass(eq=False)
class _Recipe:
    """How to rebuild one activation. What was rebuilt is held until the last of those that need it has asked for it.

    Streams do not share it: one would have to wait for the other, and the memory could be used again too early.
    """

    rebuild: Callable[[], Tensor]
    alive: "weakref.ref[Tensor]"
    needed: int = 0
    """Times that somebody will ask for it."""
    rebuilt: dict[int, Tensor] = field(default_factory=dict)
    """By stream."""

    def get(self) -> Tensor:
        stream = current_stream()
        tensor = self.rebuilt.get(stream)
        if tensor is None:
            tensor = self.rebuilt[stream] = self.rebuild()
        self.needed -= 1
        if self.needed <= 0:
            self.rebuilt.clear()
        return tensor


@dataclass(frozen=True)
class _Packed:
    """A tensor that is all or part of an activation with a recipe."""

    recipe: _Recipe
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def get(self) -> Tensor:
        return self.recipe.get().as_strided(self.shape, self.stride, self.offset)


@dataclass
class _Registry:
    """Recipes of the activations made since the context was entered, by the address of their memory."""

    least_bytes: int
    recipes: dict[int, _Recipe] = field(default_factory=dict)


_active: list[_Registry] = []


@contextmanager
def recompute_activations(least_bytes: int = LEAST_BYTES) -> Iterator[None]:
    """Within this context, forward passes keep recipes instead of the activations that `remember` was told about.

    Args:
        least_bytes: smaller activations are kept all the same.
    """
    registry = _Registry(least_bytes)
    _active.append(registry)

    def pack(tensor: Tensor) -> Tensor | _Packed:
        packed = _needed_again(tensor)
        return tensor if packed is None else packed

    def unpack(packed: Tensor | _Packed) -> Tensor:
        return packed if isinstance(packed, Tensor) else packed.get()

    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield
    finally:
        _active.remove(registry)


def remember(activation: Tensor, rebuild: Callable[[], Tensor]) -> None:
    """Notes how an activation can be computed again, unless it is small; only inside `recompute_activations()`.

    Args:
        activation: the tensor as handed on to the next layer.
        rebuild: returns an equal tensor with the same strides; called in backward, possibly more than once.
    """
    if _is_remembered_size(activation):
        _active[-1].recipes[activation.untyped_storage().data_ptr()] = _Recipe(rebuild, weakref.ref(activation))


def _is_remembered_size(activation: Tensor) -> bool:
    return bool(_active) and activation.nbytes >= _active[-1].least_bytes


def remember_from(activation: Tensor, sources: Sequence[Tensor], rebuild: Callable[..., Tensor]) -> None:
    """As `remember`, for what is made of other activations; not when as much again would be kept for it.

    Args:
        activation: the tensor as handed on to the next layer.
        sources: the tensors that it was made of.
        rebuild: makes it again from tensors equal to the sources.
    """
    if not _is_remembered_size(activation):
        return
    if 2 * sum(source.nbytes for source in sources if not is_remembered(source)) < activation.nbytes:
        getters = [recipe_of(source) for source in sources]
        remember(activation, lambda: rebuild(*(get() for get in getters)))


def is_remembered(tensor: Tensor) -> bool:
    """Tells whether the backward pass will make a tensor again instead of keeping it."""
    return _packed(tensor) is not None


def recipe_of(tensor: Tensor) -> Callable[[], Tensor]:
    """Returns how to get at a tensor once in backward: by its recipe, so that it need not be kept, or else as it is."""
    packed = _needed_again(tensor)
    if packed is not None:
        return packed.get
    kept = tensor.detach()
    return lambda: kept


def _needed_again(tensor: Tensor) -> _Packed | None:
    packed = _packed(tensor)
    if packed is not None:
        packed.recipe.needed += 1
    return packed


def _packed(tensor: Tensor) -> _Packed | None:
    recipe = _active[-1].recipes.get(tensor.untyped_storage().data_ptr()) if _active else None
    # Memory is used again once its tensor is gone, so an address counts only while the activation itself lives.
    if recipe is None or recipe.alive() is None:
        return None
    return _Packed(recipe, tensor.shape, tensor.stride(), int(tensor.storage_offset()))
