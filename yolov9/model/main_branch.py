"""The main branch of a dual graph: the single-head graph in it, and which tensor of one is which of the other."""

from dataclasses import dataclass, replace

from yolov9.config.graph_names import known_graphs
from yolov9.model.graph import DUAL_HEAD, IMAGE, SINGLE_HEAD, Graph, Row, parse_graph
from yolov9.model.graph_file import read_graph

MAIN_HEAD_PARTS = {"cv2": "cv4", "cv3": "cv5", "dfl": "dfl2"}
"""Name of a part in a single head -> name of the main part in a dual head."""


@dataclass(frozen=True)
class MainBranch:
    """Single-head graph inside another graph.

    Attributes:
        graph: the single-head graph.
        origin: row number in `graph` -> row number in the whole graph.
        dual: whether the whole graph has a dual head.
    """

    graph: Graph
    origin: dict[int, int]
    dual: bool

    def own_name(self, name: str) -> str:
        """Name in the whole model's state dict of the main branch's tensor `name`, such as "model.3.cv1.bn.bias"."""
        prefix, number, rest = name.split(".", 2)
        if self.dual and int(number) == len(self.graph.rows) - 1:
            part, _, inner = rest.partition(".")
            rest = f"{MAIN_HEAD_PARTS[part]}.{inner}"
        return f"{prefix}.{self.origin[int(number)]}.{rest}"


def main_branch(graph: Graph) -> MainBranch:
    """Rows that the main outputs of `graph` need, numbered anew; a single graph is its own main branch.

    A Silence row at the start goes as well when only the first real row reads it: it then stands for the picture.
    """
    head = graph.rows[-1]
    dual = head.type == DUAL_HEAD
    sources = head.sources[len(head.sources) // 2 :] if dual else head.sources
    kept = _needed(graph, sources)
    replaced: dict[int, int] = {IMAGE: IMAGE}
    if _silence_is_picture(graph, kept):
        replaced[kept.pop(0)] = IMAGE
    replaced |= {old: new for new, old in enumerate(kept)}
    rows = [replace(graph.rows[old], sources=_renumber(graph.rows[old].sources, replaced)) for old in kept]
    rows.append(Row(_renumber(sources, replaced), 1, SINGLE_HEAD, head.args))
    origin = dict(enumerate((*kept, len(graph.rows) - 1)))
    return MainBranch(_named(replace(graph, rows=tuple(rows)), graph.name, dual), origin, dual)


def _renumber(sources: tuple[int, ...], replaced: dict[int, int]) -> tuple[int, ...]:
    return tuple(replaced[source] for source in sources)


def _needed(graph: Graph, wanted: tuple[int, ...]) -> list[int]:
    needed = set(wanted)
    for number in range(len(graph.rows) - 2, -1, -1):
        if number in needed:
            needed.update(graph.rows[number].sources)
    return sorted(needed - {IMAGE})


def _silence_is_picture(graph: Graph, kept: list[int]) -> bool:
    if len(kept) < 2 or graph.rows[kept[0]].type != "Silence":
        return False
    return [n for n in kept if kept[0] in graph.rows[n].sources] == [kept[1]] and graph.rows[kept[1]].sources == (
        kept[0],
    )


def _named(graph: Graph, name: str, dual: bool) -> Graph:
    """Gives the graph the name of the known single graph with the same rows."""
    if not dual:
        return graph
    guess = name.replace("yolov9-", "gelan-")
    if guess in known_graphs() and parse_graph(*read_graph(guess)).rows == graph.rows:
        return replace(graph, name=guess)
    return replace(graph, name=f"{name}-main")
