"""Finds the graph that a state dict belongs to, from the names and shapes of its tensors."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from yolov9.config.graph_names import NARROW_NAMES, known_graphs
from yolov9.errors import ExitCode, UserError
from yolov9.model.build import build_graph
from yolov9.model.graph import DUAL_HEAD, SINGLE_HEAD, Graph, parse_graph
from yolov9.model.graph_file import read_graph
from yolov9.model.head import default_class_width

Shapes = Mapping[str, tuple[int, ...]]
LAYER_NAME = re.compile(r"^model\.(\d{1,4})\.")
SHOWN_DIFFERENCES = 3
NO_SUCH_HEAD = "none has such a head at this layer"


def graph_of(shapes: Shapes, content: dict[str, Any] | None, where: str) -> Graph:
    """The graph whose model has exactly these tensors.

    Args:
        shapes: shape of every tensor, by name.
        content: graph that came with the tensors; tried first.
        where: what the tensors are from, for messages.

    Raises:
        UserError: the tensors fit neither `content` nor a known graph.
    """
    head = _Head.find(shapes, where)
    differences: list[str] = []
    for graph in _candidates(head, shapes, content):
        sized = replace(graph, class_width=None).with_classes(head.nc, head.class_width)
        found = _differences(sized, shapes)
        if not found:
            return sized
        differences = differences or found
    raise UserError(
        f"weights in {where} fit no known graph: {'; '.join(differences or [NO_SUCH_HEAD])}",
        "the weights of one of: " + ", ".join(known_graphs()),
        "train from the graph file of that model (--cfg FILE --weights ''), or give other weights",
        ExitCode.BAD_DATA,
    )


class _Head:
    """What the tensors of the last layer say."""

    def __init__(self, layer: int, dual: bool, nc: int, class_width: int | None) -> None:
        self.layer, self.dual, self.nc, self.class_width = layer, dual, nc, class_width

    @classmethod
    def find(cls, shapes: Shapes, where: str) -> "_Head":
        layers = [int(match[1]) for match in map(LAYER_NAME.match, shapes) if match]
        layer = max(layers, default=-1)
        dual = f"model.{layer}.cv5.0.2.weight" in shapes
        part = f"model.{layer}.cv{5 if dual else 3}.0"
        last, first = shapes.get(f"{part}.2.weight"), shapes.get(f"{part}.0.conv.weight")
        if last is None or first is None or len(last) != 4 or len(first) != 4:
            what = "detection head" if shapes else "weights"
            raise UserError(
                f"no {what} of YOLOv9 in {where}",
                "the state dict or the checkpoint of a YOLOv9 or GELAN detector",
                "give the .pt file that a training of YOLOv9 wrote (best.pt, last.pt) or a released one",
                ExitCode.BAD_DATA,
            )
        if not any(".bn." in name for name in shapes):
            raise UserError(
                f"weights in {where} are folded for inference (no batch normalisation)",
                "weights as they were trained",
                "give the checkpoint that the folded one was made from",
                ExitCode.BAD_DATA,
            )
        nc, width, channels = last[0], last[1], first[1]
        return cls(layer, dual, nc, None if width == default_class_width(channels, nc) else width)


def _candidates(head: _Head, shapes: Shapes, content: dict[str, Any] | None) -> Iterator[Graph]:
    """Graphs with such a head at such a layer: the one that came with the tensors, then the known ones, read late."""
    kind = DUAL_HEAD if head.dual else SINGLE_HEAD
    graph = _own_graph(content)
    if graph is not None and _has_head(graph, head.layer, kind):
        yield graph
    known = [parse_graph(*read_graph(name)) for name in known_graphs() if name not in NARROW_NAMES]
    # Building a model to compare takes a good part of a second: graphs that begin differently come last.
    for graph in sorted(known, key=lambda graph: not _starts_like(graph, shapes)):
        if _has_head(graph, head.layer, kind):
            yield graph


def _own_graph(content: dict[str, Any] | None) -> Graph | None:
    """The graph that came with the tensors; None when it is written for an older form of the original code."""
    if content is not None:
        with suppress(UserError):
            return parse_graph(*read_graph(content))
    return None


def _has_head(graph: Graph, layer: int, kind: str) -> bool:
    return len(graph.rows) - 1 == layer and graph.rows[-1].type == kind


def _starts_like(graph: Graph, shapes: Shapes) -> bool:
    """Whether the first convolution of the graph has as many output channels as that of the tensors."""
    number, row = next((n, row) for n, row in enumerate(graph.rows) if row.type == "Conv")
    return shapes.get(f"model.{number}.conv.weight", (0,))[:1] == row.args[:1]


def _differences(graph: Graph, shapes: Shapes) -> list[str]:
    """The first differences between the model of a graph and the tensors; empty when they fit."""
    try:
        with torch.device("meta"):
            wanted = {name: tuple(value.shape) for name, value in build_graph(graph).state_dict().items()}
    except UserError as error:
        return [error.found]
    found = [f"{name} is missing" for name in wanted if name not in shapes]
    found += [f"{name} is unknown to {graph.name}" for name in shapes if name not in wanted]
    found += [
        f"{name} is {list(shapes[name])} instead of {list(shape)}"
        for name, shape in wanted.items()
        if shapes.get(name, shape) != shape
    ]
    return found[:SHOWN_DIFFERENCES]
