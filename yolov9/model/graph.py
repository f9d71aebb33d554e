"""A graph as checked rows: absolute sources, symbols resolved, multiples applied."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from reprlib import repr as short
from typing import Any, NoReturn

from yolov9.errors import UserError

IMAGE = -1
"""Source number of the picture itself."""
KNOWN_KEYS = frozenset(
    ("name", "nc", "class_width", "depth_multiple", "width_multiple", "layers", "backbone", "head", "ch", "anchors")
)
"""`anchors` is accepted and ignored (YOLOv9 has none); `backbone` + `head` is another way to write `layers`."""
OUTPUT_WIDTH_TYPES = frozenset(("Conv", "ELAN1", "RepNCSPELAN4", "AConv", "ADown", "SPPELAN"))
"""Types whose first argument is the number of output channels, which `width_multiple` scales."""
SINGLE_HEAD, DUAL_HEAD = "DDetect", "DualDDetect"
HEAD_TYPES = frozenset((SINGLE_HEAD, DUAL_HEAD))
WIDTH_STEP = 8
"""Scaled widths are rounded up to a multiple of this, as YOLO graph files have always been."""
MAX_ROWS = 500
"""Rows of a graph, repeats counted; the largest known graph has 50."""
MAX_REPEATS = 100
MAX_CLASSES = 65535
IMAGE_CHANNELS = 3


@dataclass(frozen=True)
class Row:
    """One layer: numbers of the rows it reads (IMAGE: the picture), repeats, type, and arguments without inputs."""

    sources: tuple[int, ...]
    repeats: int
    type: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Graph:
    """A whole graph; the last row is the head."""

    name: str
    nc: int
    rows: tuple[Row, ...]
    class_width: int | None = None

    def with_classes(self, nc: int | None, class_width: int | None) -> "Graph":
        """The same graph for another number of classes or another width of the class branches (None: unchanged)."""
        if nc is not None and not 1 <= nc <= MAX_CLASSES:
            raise UserError(f"{nc} classes", f"1 to {MAX_CLASSES} classes", "correct `nc` and `names` of the data set")
        width = self.class_width if class_width is None else class_width
        return replace(self, nc=self.nc if nc is None else nc, class_width=width)

    def as_dict(self) -> dict[str, Any]:
        """Plain form that can be written as YAML, stored in a checkpoint and given to `build_model` again."""
        layers = []
        for number, row in enumerate(self.rows):
            sources = [-1 if s == number - 1 else s for s in row.sources]
            layers.append([sources[0] if len(sources) == 1 else sources, row.repeats, row.type, _plain(row.args)])
        graph: dict[str, Any] = {"name": self.name, "nc": self.nc}
        if self.class_width is not None:
            graph["class_width"] = self.class_width
        return {**graph, "depth_multiple": 1.0, "width_multiple": 1.0, "layers": layers}


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, (tuple, list)) else value


def graph_error(name: str, where: str, found: str, needed: str) -> NoReturn:
    """Raises the error for a mistake in graph `name` at `where` (such as "layer 5 (Conv)")."""
    raise UserError(
        f"graph {name}, {where}: {found}",
        needed,
        f"correct {where} of the graph file; yolov9/config/graphs has examples",
    )


def parse_graph(name: str, content: Mapping[str, Any]) -> Graph:
    """Checks the rows of a graph file and resolves sources, `nc` and the multiples.

    Raises:
        UserError: naming the layer and what is wrong with it.
    """
    unknown = sorted(str(key) for key in content if key not in KNOWN_KEYS)
    if unknown:
        graph_error(name, f"key {unknown[0]!r}", "not known", "keys: " + ", ".join(sorted(KNOWN_KEYS)))
    if content.get("ch", IMAGE_CHANNELS) != IMAGE_CHANNELS:
        graph_error(name, "key 'ch'", short(content["ch"]), f"{IMAGE_CHANNELS}: pictures have three channels")
    raw = _raw_rows(name, content)
    depth, width = (_multiple(name, content, key) for key in ("depth_multiple", "width_multiple"))
    nc = _class_count(name, content, raw[-1])
    rows = [_row(name, number, fields, depth, width) for number, fields in enumerate(raw)]
    if sum(row.repeats for row in rows) > MAX_ROWS:
        graph_error(
            name, "rows", f"{sum(row.repeats for row in rows)} of them with their repeats", f"at most {MAX_ROWS}"
        )
    class_width = content.get("class_width")
    if class_width is not None and not (_is_integer(class_width) and class_width >= 1):
        graph_error(name, "key 'class_width'", short(class_width), "a whole number of channels, at least 1")
    return Graph(name, nc, tuple(rows), class_width)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _raw_rows(name: str, content: Mapping[str, Any]) -> list[list[Any]]:
    """The rows of `layers`, or of `backbone` and `head` one after the other; each checked to have four fields."""
    keys = ["layers"] if "layers" in content else ["backbone", "head"]
    rows: list[Any] = []
    for key in keys:
        part = content.get(key)
        if not isinstance(part, (list, tuple)):
            graph_error(
                name, f"key {key!r}", "absent" if part is None else "not a list", "rows [from, repeats, type, args]"
            )
        rows += part
    if not 2 <= len(rows) <= MAX_ROWS:
        graph_error(name, "rows", f"{len(rows)} of them", f"2 to {MAX_ROWS} rows")
    for number, row in enumerate(rows):
        if not (isinstance(row, (list, tuple)) and len(row) == 4):
            graph_error(name, f"layer {number}", short(row), "a row [from, repeats, type, args]")
    return [list(row) for row in rows]


def _multiple(name: str, content: Mapping[str, Any], key: str) -> float:
    value = content.get(key, 1.0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.01 <= value <= 100:
        graph_error(name, f"key {key!r}", short(value), "a number from 0.01 to 100")
    return float(value)


def _class_count(name: str, content: Mapping[str, Any], head: Sequence[Any]) -> int:
    """`nc` of the graph; a number in the head's arguments must agree with the key."""
    args = head[3] if isinstance(head[3], (list, tuple)) and head[2] in tuple(HEAD_TYPES) else ()
    in_head = args[0] if args and _is_integer(args[0]) else None
    nc = content.get("nc", in_head)
    if not (_is_integer(nc) and 1 <= nc <= MAX_CLASSES):
        graph_error(name, "key 'nc'", "absent" if nc is None else short(nc), f"a whole number from 1 to {MAX_CLASSES}")
    if in_head not in (None, nc):
        graph_error(
            name, "head", f"{in_head} classes in its arguments, but nc: {nc}", "one number of classes; write [nc]"
        )
    return int(nc)


def _row(name: str, number: int, fields: Sequence[Any], depth: float, width: float) -> Row:
    source, repeats, kind, args = fields
    if not isinstance(kind, str):
        graph_error(name, f"layer {number}", f"type is {short(kind)}", "the name of a block type")
    where = f"layer {number} ({kind})"
    sources = source if isinstance(source, (list, tuple)) else [source]
    if not sources or not all(_is_integer(s) for s in sources):
        graph_error(name, where, f"from is {short(source)}", "-1, a row number, or a list of them")
    absolute = tuple(number + s if s < 0 else s for s in sources)
    for given, found in zip(sources, absolute, strict=True):
        if not (0 <= found < number or (number == 0 and found == IMAGE)):
            graph_error(
                name, where, f"from {short(given)} is not an earlier row", f"-1 or a number from 0 to {number - 1}"
            )
    if not (_is_integer(repeats) and 1 <= repeats <= MAX_REPEATS):
        graph_error(name, where, f"repeats is {short(repeats)}", f"a whole number from 1 to {MAX_REPEATS}")
    if not isinstance(args, (list, tuple)):
        graph_error(name, where, f"args are {short(args)}", "a list, [] where there are none")
    kind = kind.removeprefix("nn.")
    args = [None if arg == "None" else arg for arg in args]
    if repeats > 1:
        repeats = max(round(repeats * depth), 1)
    return Row(absolute, repeats, kind, _scaled(kind, args, width))


def _scaled(kind: str, args: Sequence[Any], multiple: float) -> tuple[Any, ...]:
    """Arguments with scaled output channels; the inner widths of a block stay, as graph files of this kind mean it."""
    if multiple == 1.0 or not args:
        return tuple(args)
    if kind in OUTPUT_WIDTH_TYPES and _is_integer(args[0]):
        return (_scale_width(args[0], multiple), *args[1:])
    if kind == "CBLinear" and isinstance(args[0], (list, tuple)) and all(_is_integer(w) for w in args[0]):
        return ([_scale_width(w, multiple) for w in args[0]], *args[1:])
    return tuple(args)


def _scale_width(channels: int, multiple: float) -> int:
    return math.ceil(channels * multiple / WIDTH_STEP) * WIDTH_STEP
