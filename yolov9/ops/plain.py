"""A switch between the kernels of this project and the plain PyTorch operations that specify them."""

from collections.abc import Iterator
from contextlib import contextmanager

_depth = [0]


@contextmanager
def plain_operations() -> Iterator[None]:
    """Within this context every operation of `yolov9.ops` is computed by its plain twin, on any device."""
    _depth[0] += 1
    try:
        yield
    finally:
        _depth[0] -= 1


def plain_wanted() -> bool:
    """Tells whether the caller is inside `plain_operations`."""
    return _depth[0] > 0
