"""Anonymous shared memory (memfd): given to other processes as a file descriptor, gone with the last of them.

It is not taken from /dev/shm, so its size limit does not matter; it does count against the memory limit.
"""

import math
import mmap
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

PAGE_BYTES = mmap.PAGESIZE
ArrayLayout = list[tuple[str, str, list[int], int]]
"""Per array: name, dtype, shape and first byte; plain values, so that it can be sent as JSON."""


def create_memory(name: str, size_bytes: int) -> int:
    """Returns the descriptor of new shared memory, all zero; pages take memory once they are written."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    os.ftruncate(fd, max(size_bytes, 1))
    return fd


def map_memory(fd: int, *, writable: bool = True) -> mmap.mmap:
    """Maps all of the memory behind a descriptor; the mapping outlives the descriptor."""
    access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    return mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED, access)


def round_up_to_page(size_bytes: int) -> int:
    """Returns the size of the whole pages that hold so many bytes."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def share_arrays(name: str, arrays: Mapping[str, NDArray[Any]]) -> tuple[int, ArrayLayout]:
    """Copies arrays into new shared memory.

    Returns:
        Its descriptor, and where each array lies.
    """
    layout: ArrayLayout = []
    offset = 0
    for key, array in arrays.items():
        layout.append((key, array.dtype.str, list(array.shape), offset))
        offset = round_up_to_page(offset + array.nbytes)
    fd = create_memory(name, offset)
    for key, view in map_arrays(fd, layout, writable=True).items():
        view[...] = arrays[key]
    return fd, layout


def map_arrays(fd: int, layout: ArrayLayout, *, writable: bool = False) -> dict[str, NDArray[Any]]:
    """Returns arrays in shared memory as views of it."""
    memory = map_memory(fd, writable=writable)
    arrays = {}
    for key, dtype, shape, offset in layout:
        count = math.prod(shape)
        flat = np.frombuffer(memory, dtype, count, offset) if count else np.empty(0, dtype)
        arrays[key] = flat.reshape(shape)
    return arrays
