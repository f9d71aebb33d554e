"""Builds a detector from the name of a graph, a graph file or a graph read before."""

from fractions import Fraction
from pathlib import Path
from typing import Any

from torch import nn

from yolov9.model.detector import DetectionModel
from yolov9.model.graph import IMAGE, IMAGE_CHANNELS, Graph, parse_graph
from yolov9.model.graph_file import read_graph
from yolov9.model.layer_types import Feature, make_layer


def build_model(
    name_or_yaml: str | Path | dict[str, Any], nc: int | None = None, class_width: int | None = None
) -> DetectionModel:
    """A detector with freshly drawn weights, on the current default device.

    Args:
        name_or_yaml: a known name ("yolov9-s", "yolov9-s.yaml" and "models/detect/yolov9-s.yaml" are the same), the
            path of a graph file, or the `graph` of another model.
        nc: number of classes; None: as the graph says (the known ones say 80).
        class_width: width of the class branches; None: as the graph says, else the rule of the number of classes.

    Raises:
        UserError: unknown name, or a mistake in the graph; the message names the layer.
    """
    name, content = read_graph(name_or_yaml)
    return build_graph(parse_graph(name, content).with_classes(nc, class_width))


def build_graph(graph: Graph) -> DetectionModel:
    """A detector for a checked graph; see `build_model`."""
    features = {IMAGE: Feature(IMAGE_CHANNELS, Fraction(1))}
    layers: list[nn.Module] = []
    for number, row in enumerate(graph.rows):
        layer, features[number] = make_layer(graph, number, [features[source] for source in row.sources])
        layers.append(layer)
    return DetectionModel(graph, layers, [features[number].stride for number in range(len(layers) - 1)])
