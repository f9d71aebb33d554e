"""Inert values that a foreign pickle is turned into: nothing here runs code, imports a module or reads a file."""

from dataclasses import dataclass, field
from typing import Any

import torch

STORAGE_DTYPES = {
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "DoubleStorage": torch.float64,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
"""Storage classes of module `torch` by name."""


class PickleError(Exception):
    """The bytes are not a pickle that a checkpoint may hold; the message says why."""


class ForbiddenGlobal(PickleError):
    """The pickle asks for a function or class that no checkpoint needs.

    Args:
        name: module and name, as the pickle has them.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"it asks for {name}")
        self.name = name


@dataclass(frozen=True, slots=True)
class GlobalName:
    """Name of a class or function; it is never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True)
class Inert:
    """An object of a class that is not there: name of the class, what it was made from, its attributes."""

    kind: GlobalName
    args: tuple[Any, ...] = ()
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StorageRecord:
    """Block of numbers in the file: key, type and count."""

    key: str
    dtype: torch.dtype
    count: int


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A tensor that has not been read: where its numbers are and how they are laid out (in elements)."""

    storage: StorageRecord
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
