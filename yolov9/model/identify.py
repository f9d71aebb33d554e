"""Finds the graph that a state dict belongs to, from the names and shapes of its tensors."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from yolov9.errors import ExitCode, UserError
from yolov9.model.build import build_graph
from yolov9.model.graph import Graph, parse_graph
from yolov9.model.graph_file import NARROW_NAMES, known_graphs, read_graph
from yolov9.model.head import default_class_width
from yolov9.model.main_branch import DUAL_HEAD, SINGLE_HEAD

Shapes = Mapping[str, tuple[int, ...]]
LAYER_NAME = re.compile(r"^model\.(\d{1,4})\.")
SHOWN_DIFFERENCES = 3


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
    differences = ["no known graph has this head at this layer"]
    for graph in _candidates(head, content):
        sized = replace(graph, nc=head.nc, class_width=head.class_width)
        differences = _differences(sized, shapes)
        if not differences:
            return sized
    raise UserError(
        f"weights in {where} fit no known graph: {'; '.join(differences)}",
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
            what = "a detection head" if shapes else "weights"
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


def _candidates(head: _Head, content: dict[str, Any] | None) -> Iterator[Graph]:
    """Graphs with such a head at such a layer, the one that came with the tensors first; the others are read late."""
    kind = DUAL_HEAD if head.dual else SINGLE_HEAD
    for graph in _known(content):
        if len(graph.rows) - 1 == head.layer and graph.rows[-1].type == kind:
            yield graph


def _known(content: dict[str, Any] | None) -> Iterator[Graph]:
    if content is not None:
        # It may be written for an older form of the original code; the known graphs may still fit then.
        with suppress(UserError):
            yield parse_graph(str(content.get("name", "custom")), content)
    for name in known_graphs():
        if name not in NARROW_NAMES:
            yield parse_graph(*read_graph(name))


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
