"""State dict of a pickled module object: its parameters and buffers, in the order of the framework."""

from collections.abc import Iterator
from typing import Any

from yolov9.model.pickle_values import Inert, PickleError, TensorRecord

MAX_DEPTH = 32
MAX_MODULES = 20_000
"""The largest of the original models has about 1,500; a damaged file can contain a module in itself."""


def state_records(module: Inert) -> dict[str, TensorRecord]:
    """Names and records of all tensors below `module`.

    Raises:
        PickleError: the object is not built like a module, or is nested without end.
    """
    records: dict[str, TensorRecord] = {}
    waiting: list[tuple[str, int, Any]] = [("", 0, module)]
    for _ in range(MAX_MODULES):
        if not waiting:
            return records
        prefix, depth, current = waiting.pop()
        if depth > MAX_DEPTH:
            raise PickleError(f"the model has modules nested more than {MAX_DEPTH} deep")
        for name, record in _own_records(current):
            records[prefix + name] = record
        children = _table(current, "_modules")
        waiting += [(f"{prefix}{name}.", depth + 1, child) for name, child in reversed(children) if child is not None]
    raise PickleError(f"the model has more than {MAX_MODULES} modules")


def _own_records(module: Inert) -> Iterator[tuple[str, TensorRecord]]:
    """Parameters, then the buffers that a state dict has."""
    hidden = module.state.get("_non_persistent_buffers_set") if isinstance(module, Inert) else None
    for group in ("_parameters", "_buffers"):
        for name, value in _table(module, group):
            kept = group == "_parameters" or not (isinstance(hidden, list) and name in hidden)
            if isinstance(value, TensorRecord) and kept:
                yield name, value


def _table(module: Any, name: str) -> list[tuple[str, Any]]:
    table = module.state.get(name, {}) if isinstance(module, Inert) else None
    if not isinstance(table, dict):
        raise PickleError("the model is not built of modules")
    return [(str(key), value) for key, value in table.items()]
