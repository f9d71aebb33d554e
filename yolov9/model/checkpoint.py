"""Reads weights from a file: our own checkpoints, those of the original code, and bare state dicts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from yolov9.errors import ExitCode, UserError
from yolov9.logs import LOG
from yolov9.model.build import build_graph
from yolov9.model.detector import DetectionModel
from yolov9.model.graph import DUAL_HEAD, Graph
from yolov9.model.identify import graph_of
from yolov9.model.module_tree import state_records
from yolov9.model.pickle_values import Inert, PickleError, TensorRecord
from yolov9.model.weight_file import WHOLE_FILE_REMEDY, WeightFile

OWN_FORMAT = "yolov9-checkpoint-1"
OWN_FORMAT_START = "yolov9-checkpoint-"
PREFERRED = ("ema", "model", "state_dict")
"""Where weights are looked for; the running average is the better model."""
WRAPPER_PREFIX = "module."
"""In front of every name when a model was saved while wrapped for several GPUs."""


@dataclass(frozen=True)
class Checkpoint:
    """Weights and what is needed to build their model."""

    state_dict: dict[str, Tensor]
    """float32 (counters int64), on the CPU; the running average where the file has one."""
    spec: Graph
    """The graph, with the number of classes and the width of the class branches of these weights."""
    names: list[str] | None
    """Class names; None when the file has none that fit."""
    epoch: int | None
    """Epoch stored in the file; None when it is a finished or bare one."""
    form: Literal["own", "original", "bare"]
    """Who wrote the file."""

    @property
    def graph(self) -> dict[str, Any]:
        """The graph as `build_model` takes it."""
        return self.spec.as_dict()

    @property
    def nc(self) -> int:
        """Number of classes."""
        return self.spec.nc

    @property
    def class_width(self) -> int | None:
        """Width of the class branches where it is not the default of the number of classes."""
        return self.spec.class_width

    @property
    def kind(self) -> Literal["single", "dual"]:
        """Kind of the head."""
        return "dual" if self.spec.rows[-1].type == DUAL_HEAD else "single"


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Reads weights without running anything from the file.

    Raises:
        UserError: no such file, not a checkpoint, damaged, it wants to run code, or its weights fit no graph.
    """
    with WeightFile(Path(path)) as file:
        try:
            form, records, extra = _weights(file.root)
        except PickleError as error:
            raise _not_a_checkpoint(file.path, str(error)) from error
        graph = graph_of({name: r.shape for name, r in records.items()}, extra.graph, str(path))
        state = {name: file.tensor(record) for name, record in records.items()}
    return Checkpoint(state, graph, _class_names(extra.names, graph.nc, file.path), extra.epoch, form)


def load_weights(path: str | Path) -> DetectionModel:
    """The model of a weights file with its weights and class names, in evaluation mode, on the CPU.

    Raises:
        UserError: as `read_checkpoint`.
    """
    checkpoint = read_checkpoint(path)
    with torch.device("meta"):
        model = build_graph(checkpoint.spec)
    model.load_state_dict(checkpoint.state_dict, assign=True)
    model.head.freeze_bins()
    if checkpoint.names is not None:
        model.names = list(checkpoint.names)
    return model.eval()


@dataclass(frozen=True)
class _Extra:
    """What a file says besides weights; not checked yet."""

    graph: dict[str, Any] | None = None
    names: Any = None
    epoch: int | None = None


_Found = tuple[Literal["own", "original", "bare"], dict[str, TensorRecord], _Extra]


def _weights(root: Any) -> _Found:
    """Weights in the value of a file's pickle."""
    if isinstance(root, Inert):
        root = {"model": root}
    if not isinstance(root, dict):
        raise PickleError(f"it holds a {type(root).__name__}")
    written_by = root.get("format")
    if isinstance(written_by, str) and written_by.startswith(OWN_FORMAT_START) and written_by != OWN_FORMAT:
        raise PickleError(f"it has the format {written_by}, which only a newer version reads")
    for key in PREFERRED:
        value = root.get(key)
        if isinstance(value, Inert):
            return "original", state_records(value), _original_extra(value, root)
        if isinstance(value, dict) and _is_state(value):
            return ("own" if written_by == OWN_FORMAT else "bare"), _unwrapped(value), _own_extra(root)
    if _is_state(root):
        return "bare", _unwrapped(root), _Extra()
    raise PickleError("it holds no weights")


def _is_state(value: Mapping[Any, Any]) -> bool:
    return bool(value) and all(isinstance(v, TensorRecord) for v in value.values())


def _unwrapped(state: Mapping[Any, TensorRecord]) -> dict[str, TensorRecord]:
    names = [str(name) for name in state]
    wrapped = all(name.startswith(WRAPPER_PREFIX) for name in names)
    names = [name.removeprefix(WRAPPER_PREFIX) for name in names] if wrapped else names
    return dict(zip(names, state.values(), strict=True))


def _original_extra(model: Inert, root: Mapping[str, Any]) -> _Extra:
    graph = model.state.get("yaml")
    if isinstance(graph, dict):
        file_name = model.state.get("yaml_file")
        graph = {**graph, "name": Path(file_name).stem if isinstance(file_name, str) else "custom"}
    return _Extra(graph if isinstance(graph, dict) else None, model.state.get("names"), _epoch(root))


def _own_extra(root: Mapping[str, Any]) -> _Extra:
    graph = root.get("graph")
    return _Extra(graph if isinstance(graph, dict) else None, root.get("names"), _epoch(root))


def _epoch(root: Mapping[str, Any]) -> int | None:
    epoch = root.get("epoch")
    return epoch if type(epoch) is int and epoch >= 0 else None


def _class_names(names: Any, nc: int, path: Path) -> list[str] | None:
    """Names as a list; files hold a list, or a dictionary by class number."""
    listed: list[Any] | None = None
    if isinstance(names, (list, tuple)):
        listed = list(names)
    elif isinstance(names, dict):
        listed = [names.get(i, names.get(str(i))) for i in range(len(names))]
    if listed is not None and len(listed) == nc and all(isinstance(name, (str, int)) for name in listed):
        return [str(name) for name in listed]
    if names is not None:
        LOG.warning("%s: class names do not fit its %d classes; classes are named by their numbers", path, nc)
    return None


def _not_a_checkpoint(path: Path, reason: str) -> UserError:
    return UserError(
        f"{path} is not a checkpoint of YOLOv9: {reason}",
        "a .pt file of YOLOv9: of this program, of the original code, or a state dict",
        WHOLE_FILE_REMEDY,
        ExitCode.BAD_DATA,
    )
