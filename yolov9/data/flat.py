"""Packs many small things into one flat array and an array of offsets, which workers can share without copies."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]


def offsets_of(lengths: Sequence[int]) -> Offsets:
    """Returns (n + 1,) positions where each of n things of these lengths begins, and the total at the end."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(np.asarray(lengths, np.int64), out=offsets[1:])
    return offsets


def join_bytes(texts: Iterable[bytes]) -> tuple[NDArray[np.uint8], Offsets]:
    """Joins byte strings to one uint8 array and offsets."""
    listed = list(texts)
    return np.frombuffer(b"".join(listed), np.uint8), offsets_of([len(text) for text in listed])


def split_bytes(joined: NDArray[np.uint8], offsets: Offsets) -> list[bytes]:
    """Undoes `join_bytes`.

    Raises:
        ValueError: the offsets do not fit the array.
    """
    data = joined.tobytes()
    if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(data) or (np.diff(offsets) < 0).any():
        raise ValueError("offsets do not fit")
    places = offsets.tolist()
    return [data[start:end] for start, end in pairwise(places)]


def join_rows(parts: Sequence[NDArray[Any]], columns: int) -> NDArray[np.float32]:
    """Stacks (n_i, columns) arrays to one float32 array; (0, columns) when there are none."""
    if not parts:
        return np.zeros((0, columns), np.float32)
    return np.concatenate(parts).astype(np.float32, copy=False)
