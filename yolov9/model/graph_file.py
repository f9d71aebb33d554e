"""Reads the graph that a name, a YAML file or a dictionary stands for."""

from functools import cache
from pathlib import Path
from typing import Any

from yolov9.config.graph_names import GRAPHS_DIR, find_graph, known_graphs
from yolov9.config.yaml_file import YamlFileError, read_yaml
from yolov9.errors import UserError

UNNAMED = "custom"
"""Name of a graph that came without one."""
MAX_GRAPH_BYTES = 1 << 20


def read_graph(source: str | Path | dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and content of a graph.

    Args:
        source: what `find_graph` takes, or a graph read before.

    Raises:
        UserError: no such file or name, or the file does not hold a graph.
    """
    if isinstance(source, dict):
        name = source.get("name")
        return name if isinstance(name, str) else UNNAMED, source
    found = find_graph(source)
    if found is None:
        raise UserError(
            f"model {str(source)!r} is neither a graph file nor a known name",
            "a graph file or one of: " + ", ".join(known_graphs()),
            "--cfg yolov9-s, or the path of your own graph file",
        )
    graph = _load_builtin(found.file) if found.file.parent == GRAPHS_DIR else _load(found.file)
    return found.name, graph if found.class_width is None else {**graph, "class_width": found.class_width}


@cache
def _load_builtin(path: Path) -> dict[str, Any]:
    """One of our own graphs; the content is shared and must not be changed."""
    return _load(path)


def _load(path: Path) -> dict[str, Any]:
    remedy = f"correct {path}; yolov9/config/graphs has ten examples"
    if path.stat().st_size > MAX_GRAPH_BYTES:
        raise UserError(f"graph file {path} has {path.stat().st_size} bytes", f"at most {MAX_GRAPH_BYTES}", remedy)
    try:
        content = read_yaml(path)
    except YamlFileError as error:
        raise UserError(f"graph file {path} cannot be read: {error}", "a YAML file in UTF-8", remedy) from error
    if not isinstance(content, dict):
        raise UserError(f"graph file {path} holds no keys", "`nc` and rows under `layers`", remedy)
    return content
