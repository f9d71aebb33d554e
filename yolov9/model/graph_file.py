"""Finds the graph that a name, a YAML file or a dictionary stands for."""

import re
from functools import cache
from pathlib import Path
from typing import Any

from yolov9.config.yaml_file import YamlFileError, read_yaml
from yolov9.errors import UserError

GRAPHS_DIR = Path(__file__).parents[1] / "config" / "graphs"
NARROW_SUFFIX = re.compile(r"^(?P<graph>.+)-cls(?P<width>[1-9]\d{0,3})$")
"""`gelan-t-cls80` is gelan-t with class branches 80 wide, as in the released weights of size t."""
NARROW_NAMES = ("gelan-t-cls80", "yolov9-t-cls80")
UNNAMED = "custom"
"""Name of a graph that came without one."""
YAML_ENDINGS = (".yaml", ".yml")
MAX_GRAPH_BYTES = 1 << 20


def known_graphs() -> list[str]:
    """Names that `build_model` knows without a file."""
    return sorted((*(path.stem for path in GRAPHS_DIR.glob("*.yaml")), *NARROW_NAMES))


def read_graph(source: str | Path | dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and content of a graph.

    Args:
        source: a known name with or without folder and `.yaml`, the path of a YAML file, or a graph read before. A file
            that exists wins over a known name.

    Raises:
        UserError: no such file or name, or the file does not hold a graph.
    """
    if isinstance(source, dict):
        name = source.get("name")
        return name if isinstance(name, str) else UNNAMED, source
    path = Path(source)
    if path.suffix in YAML_ENDINGS and path.is_file():
        return path.stem, _load(path)
    stem = path.stem if path.suffix in YAML_ENDINGS else path.name
    narrow = NARROW_SUFFIX.match(stem)
    builtin = GRAPHS_DIR / f"{narrow['graph'] if narrow else stem}.yaml"
    if not stem or not builtin.is_file():
        raise UserError(
            f"model {str(source)!r} is neither a file nor a known name",
            "a graph file or one of: " + ", ".join(known_graphs()),
            "--cfg yolov9-s, or the path of your own graph file",
        )
    graph = _load_builtin(builtin)
    return stem, {**graph, "class_width": int(narrow["width"])} if narrow else graph


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
