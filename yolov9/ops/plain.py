"""Which operations run as kernels of this project, and which as the plain PyTorch operations that specify them."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

Capability = tuple[int, int]
"""Compute capability of a card, major and minor."""

_plain_depth = [0]
_meta_cards: list[Capability] = []


@cache
def triton_is_installed() -> bool:
    """Tells whether Triton can be imported; PyTorch's CUDA builds bring it, CPU builds do not."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def kernels_take(x: Tensor) -> bool:
    """Tells whether kernels of this project may work on a tensor: on a CUDA card with Triton, unless the caller is
    inside `plain_operations`."""
    return (x.is_cuda or (x.is_meta and bool(_meta_cards))) and kernels_wanted()


def kernels_wanted() -> bool:
    """Tells whether there are kernels, and nobody wants plain operations instead."""
    return _plain_depth[0] == 0 and triton_is_installed()


def capability_of(x: Tensor) -> Capability:
    """Compute capability of the card for which kernels take a tensor."""
    return _meta_cards[-1] if x.is_meta else torch.cuda.get_device_capability(x.device)


def give_up_kernels() -> None:
    """Makes every operation a plain one for the rest of this process."""
    _plain_depth[0] += 1


@contextmanager
def plain_operations() -> Iterator[None]:
    """Within this context every operation of `yolov9.ops` is computed by its plain twin, on any device."""
    _plain_depth[0] += 1
    try:
        yield
    finally:
        _plain_depth[0] -= 1


@contextmanager
def kernels_on_meta(capability: Capability) -> Iterator[None]:
    """Within this context kernels take tensors without content too, as on such a card; launches are to be caught."""
    _meta_cards.append(capability)
    try:
        yield
    finally:
        _meta_cards.pop()
