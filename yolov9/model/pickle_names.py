"""The only names that a checkpoint's pickle may mention, and what each call of them means here."""

from collections.abc import Callable
from typing import Any

from yolov9.model.pickle_values import (
    STORAGE_DTYPES,
    ForbiddenGlobal,
    GlobalName,
    Inert,
    PickleError,
    StorageRecord,
    TensorRecord,
)

MAX_DIMENSIONS = 8
MAX_ELEMENTS = 1 << 40
INERT_PACKAGES = ("models", "torch.nn.modules")
"""Modules whose classes become `Inert`: those of the original code and the layers of the framework."""
INERT_NAMES = frozenset(
    (
        "numpy.core.multiarray._reconstruct",
        "numpy._core.multiarray._reconstruct",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray.scalar",
        "numpy.dtype",
        "numpy.ndarray",
        "torch.device",
        "argparse.Namespace",
        "pathlib.PosixPath",
        "pathlib.WindowsPath",
        "pathlib.PurePosixPath",
        "pathlib.PureWindowsPath",
    )
)
"""Names of values that training files hold besides weights; they are kept as `Inert` and never used."""


def _is_inert_class(target: GlobalName) -> bool:
    return any(target.module == package or target.module.startswith(package + ".") for package in INERT_PACKAGES)


def _ordered_dict(*args: Any) -> dict[Any, Any]:
    if not args:
        return {}
    (pairs,) = args
    result: dict[Any, Any] = {}
    for key, value in pairs:
        result[checked_key(key)] = value
    return result


def _items(*args: Any) -> list[Any]:
    """A set, kept as a list: sets of a checkpoint are never looked into."""
    (items,) = args or ([],)
    return _listed(items)


def _listed(items: Any) -> list[Any]:
    if not isinstance(items, (list, tuple)):
        raise PickleError("a list is missing")
    return list(items)


def _size(*args: Any) -> tuple[Any, ...]:
    (sides,) = args
    return tuple(_listed(sides))


def _latin1(text: Any, encoding: Any) -> bytes:
    """Bytes as protocol 2 stores them: text and the name of the encoding, which is always latin1."""
    if not isinstance(text, str) or encoding != "latin1":
        raise PickleError("bytes are stored in an unknown way")
    try:
        return text.encode("latin1")
    except UnicodeEncodeError as error:
        raise PickleError("bytes are stored in an unknown way") from error


def _whole_numbers(values: Any) -> tuple[int, ...]:
    numbers = tuple(_listed(values))
    if len(numbers) > MAX_DIMENSIONS or not all(type(v) is int and 0 <= v <= MAX_ELEMENTS for v in numbers):
        raise PickleError("a tensor has impossible sizes")
    return numbers


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_rest: Any) -> TensorRecord:
    """A tensor that lies inside its storage; one that repeats numbers (step 0) is refused with it."""
    sides, steps = _whole_numbers(shape), _whole_numbers(strides)
    if not isinstance(storage, StorageRecord) or type(offset) is not int or len(sides) != len(steps) or offset < 0:
        raise PickleError("a tensor is described in an unknown way")
    elements = 1
    for side in sides:
        elements *= side
    last = offset + sum((side - 1) * step for side, step in zip(sides, steps, strict=True))
    if elements and (last >= storage.count or elements > storage.count):
        raise PickleError("a tensor is larger than its data")
    return TensorRecord(storage, offset, sides, steps)


def _parameter(data: Any, *_rest: Any) -> TensorRecord:
    if not isinstance(data, TensorRecord):
        raise PickleError("a parameter is not a tensor")
    return data


CALLS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _ordered_dict,
    "__builtin__.set": _items,
    "builtins.set": _items,
    "torch.Size": _size,
    "_codecs.encode": _latin1,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
}
"""Functions that a pickle may call, and the harmless function here that stands for each."""


def allowed_name(module: Any, name: Any) -> GlobalName:
    """The name, if a checkpoint may mention it.

    Raises:
        ForbiddenGlobal: it may not.
    """
    target = GlobalName(str(module), str(name))
    full = str(target)
    storage = target.module in ("torch", "torch.storage") and target.name in STORAGE_DTYPES
    if full in CALLS or full in INERT_NAMES or storage or _is_inert_class(target):
        return target
    raise ForbiddenGlobal(full)


def call(target: Any, args: Any) -> Any:
    """What calling `target` with `args` means here.

    Raises:
        ForbiddenGlobal: a name that may be mentioned but not called.
        PickleError: `target` is no name at all, or its arguments do not fit.
    """
    if not isinstance(target, GlobalName) or not isinstance(args, tuple):
        raise PickleError("it calls something that is not a function")
    full = str(target)
    if full in INERT_NAMES:
        return Inert(target, args)
    if full not in CALLS:
        raise ForbiddenGlobal(f"a call of {full}")
    try:
        return CALLS[full](*args)
    except (TypeError, ValueError) as error:
        raise PickleError(f"the arguments of {full} do not fit") from error


def new_object(target: Any, args: Any) -> Any:
    """An empty object of the class `target`; only classes that become `Inert` have objects."""
    if isinstance(target, GlobalName) and _is_inert_class(target):
        return Inert(target, tuple(_listed(args)))
    return call(target, args)


def storage_record(description: Any) -> StorageRecord:
    """Block of numbers that a persistent reference describes: ("storage", class, key, place, count, ...)."""
    if not isinstance(description, tuple) or len(description) < 5 or description[0] != "storage":
        raise PickleError("it refers to data in an unknown way")
    _, kind, key, _, count = description[:5]
    if not isinstance(kind, GlobalName) or kind.name not in STORAGE_DTYPES or not isinstance(key, str):
        raise PickleError("it refers to data of an unknown type")
    if type(count) is not int or not 0 <= count <= MAX_ELEMENTS:
        raise PickleError("it refers to data of an impossible size")
    return StorageRecord(key, STORAGE_DTYPES[kind.name], count)


def checked_key(key: Any) -> Any:
    """`key` when a dictionary of a checkpoint may have it: nested keys could take forever to hash."""
    if isinstance(key, (str, int, float, bytes, type(None))):
        return key
    raise PickleError(f"a dictionary has a key of type {type(key).__name__}")
