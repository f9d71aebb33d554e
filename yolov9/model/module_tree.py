"""State dict of a pickled module object: its parameters and buffers, in the order of the framework."""

from collections.abc import Iterator
from typing import Any

from yolov9.model.pickle_values import Inert, PickleError, TensorRecord

MAX_DEPTH = 32
MAX_TENSORS = 100_000


def state_records(module: Inert) -> dict[str, TensorRecord]:
    """Names and records of all tensors below `module`.

    Raises:
        PickleError: the object is not built like a module, or is nested without end.
    """
    records: dict[str, TensorRecord] = {}
    for name, record in _walk(module, "", 0):
        records[name] = record
        if len(records) > MAX_TENSORS:
            raise PickleError(f"the model has more than {MAX_TENSORS} tensors")
    return records


def _walk(module: Any, prefix: str, depth: int) -> Iterator[tuple[str, TensorRecord]]:
    if not isinstance(module, Inert) or depth > MAX_DEPTH:
        raise PickleError("the model is not built of modules")
    hidden = module.state.get("_non_persistent_buffers_set", [])
    for group in ("_parameters", "_buffers"):
        for name, value in _table(module, group):
            if isinstance(value, TensorRecord) and not (group == "_buffers" and name in hidden):
                yield prefix + name, value
    for name, child in _table(module, "_modules"):
        if child is not None:
            yield from _walk(child, f"{prefix}{name}.", depth + 1)


def _table(module: Inert, name: str) -> list[tuple[str, Any]]:
    table = module.state.get(name, {})
    if not isinstance(table, dict):
        raise PickleError("the model is not built of modules")
    return [(str(key), value) for key, value in table.items()]
