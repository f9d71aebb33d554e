"""Which graph a name or a path means: read by the plan, which knows no PyTorch, and by the builder of models."""

import re
from pathlib import Path
from typing import NamedTuple

GRAPHS_DIR = Path(__file__).parent / "graphs"
YAML_ENDINGS = (".yaml", ".yml")
NARROW_SUFFIX = re.compile(r"^(?P<graph>.+)-cls(?P<width>[1-9]\d{0,3})$")
"""`gelan-t-cls80` is gelan-t with class branches 80 wide, as in the released weights of size t."""
NARROW_NAMES = ("gelan-t-cls80", "yolov9-t-cls80")


class GraphSource(NamedTuple):
    """A graph that was found."""

    name: str
    """As plans and checkpoints call it."""
    file: Path
    class_width: int | None
    """Width of the class branches that the name asks for; None: what the file says."""


def known_graphs() -> list[str]:
    """Returns the names that mean a graph without any file of the user's."""
    return sorted((*(path.stem for path in GRAPHS_DIR.glob("*.yaml")), *NARROW_NAMES))


def find_graph(source: str | Path) -> GraphSource | None:
    """Returns what a name or a path means; None when there is neither a graph file nor a graph of that name.

    Args:
        source: a known name with or without folder and `.yaml`, or the path of a YAML file. A file that exists wins
            over a known name.
    """
    path = Path(source)
    is_yaml = path.suffix in YAML_ENDINGS
    if is_yaml and path.is_file():
        return GraphSource(path.stem, path, None)
    name = path.stem if is_yaml else path.name
    narrow = NARROW_SUFFIX.match(name)
    file = GRAPHS_DIR / f"{narrow['graph'] if narrow else name}.yaml"
    if not name or not file.is_file():
        return None
    return GraphSource(name, file, int(narrow["width"]) if narrow else None)
