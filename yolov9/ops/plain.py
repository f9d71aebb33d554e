"""Which operations run as kernels of this project, and which as the plain PyTorch operations that specify them."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from torch import Tensor

_depth = {"plain": 0, "meta": 0}


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
    return (x.is_cuda or (x.is_meta and _depth["meta"] > 0)) and kernels_wanted()


def kernels_wanted() -> bool:
    """Tells whether there are kernels, and nobody wants plain operations instead."""
    return _depth["plain"] == 0 and triton_is_installed()


def give_up_kernels() -> None:
    """Makes every operation a plain one for the rest of this process."""
    _depth["plain"] += 1


@contextmanager
def plain_operations() -> Iterator[None]:
    """Within this context every operation of `yolov9.ops` is computed by its plain twin, on any device."""
    with _inside("plain"):
        yield


@contextmanager
def kernels_on_meta() -> Iterator[None]:
    """Within this context kernels take tensors without content too: somebody catches their launches."""
    with _inside("meta"):
        yield


@contextmanager
def _inside(which: str) -> Iterator[None]:
    _depth[which] += 1
    try:
        yield
    finally:
        _depth[which] -= 1
