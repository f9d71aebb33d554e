"""The block types that graph rows can name: their arguments, what they make of their inputs, and their modules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from reprlib import repr as short
from typing import Any, NoReturn

from torch import nn

from yolov9.model.conv import ConvUnit
from yolov9.model.elan import ELAN1, RepNCSPELAN4
from yolov9.model.graph import HEAD_TYPES, Graph, graph_error
from yolov9.model.head import DDetect, DetectionHead, DualDDetect
from yolov9.model.routing import CBFuse, CBLinear, Concat, Silence, Upsample
from yolov9.model.sampling import SPPELAN, AConv, ADown

MAX_CHANNELS = 1 << 16
MAX_KERNEL = 31
MAX_BOTTLENECKS = 30


@dataclass(frozen=True)
class Feature:
    """What a layer hands on: channels, pixels a cell, and for CBLinear the widths of its pieces."""

    channels: int
    stride: Fraction
    pieces: tuple[int, ...] = ()


@dataclass(frozen=True)
class Site:
    """A row being built: knows how to read its arguments and how to complain."""

    graph: Graph
    number: int

    def fail(self, found: str, needed: str) -> NoReturn:
        """Raises a UserError that names the graph and the layer."""
        graph_error(self.graph.name, f"layer {self.number} ({self.graph.rows[self.number].type})", found, needed)

    def one(self, inputs: Sequence[Feature]) -> Feature:
        """The only input of a block that takes one tensor."""
        if len(inputs) != 1 or inputs[0].pieces:
            what = "a list of CBLinear pieces" if len(inputs) == 1 else f"{len(inputs)} inputs"
            self.fail(f"from gives {what}", "one tensor; only Concat and CBFuse take several, only CBFuse takes pieces")
        return inputs[0]

    def numbers(self, args: Sequence[Any], names: Sequence[str], *defaults: int) -> list[int]:
        """Arguments as whole numbers from 1 on; `defaults` stand for the last ones."""
        least = len(names) - len(defaults)
        if not least <= len(args) <= len(names):
            optional = f" (the last {len(defaults)} may be left out)" if defaults else ""
            self.fail(
                f"{len(args)} arguments {short(list(args))}", f"[{', '.join(names)}] without input channels{optional}"
            )
        values = [*args, *defaults[len(defaults) - (len(names) - len(args)) :]] if len(args) < len(names) else [*args]
        for name, value in zip(names, values, strict=True):
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_CHANNELS:
                self.fail(f"{name} is {short(value)}", f"a whole number from 1 to {MAX_CHANNELS}")
        return values

    def even(self, name: str, value: int) -> None:
        """Complains about an odd number of channels that has to be halved."""
        if value % 2:
            self.fail(f"{name} is {value}", "an even number: the block cuts it in halves")


Built = tuple[nn.Module, Feature]
Maker = Callable[[Site, Sequence[Feature], Sequence[Any]], Built]


def _conv(site: Site, inputs: Sequence[Feature], args: Sequence[Any]) -> Built:
    x = site.one(inputs)
    out, kernel, stride = site.numbers(args, ("output channels", "kernel", "stride"), 1, 1)
    if kernel > MAX_KERNEL or kernel % 2 == 0:
        site.fail(f"kernel is {kernel}", f"an odd number up to {MAX_KERNEL}")
    return ConvUnit(x.channels, out, kernel, stride), Feature(out, x.stride * stride)


def _elan1(site: Site, inputs: Sequence[Feature], args: Sequence[Any]) -> Built:
    x = site.one(inputs)
    out, mid, part = site.numbers(args, ("output channels", "middle channels", "part channels"))
    site.even("middle channels", mid)
    return ELAN1(x.channels, out, mid, part), Feature(out, x.stride)


def _rep_elan(site: Site, inputs: Sequence[Feature], args: Sequence[Any]) -> Built:
    x = site.one(inputs)
    names = ("output channels", "middle channels", "part channels", "bottlenecks")
    out, mid, part, count = site.numbers(args, names, 1)
    site.even("middle channels", mid)
    site.even("part channels", part)
    if count > MAX_BOTTLENECKS:
        site.fail(f"bottlenecks is {count}", f"at most {MAX_BOTTLENECKS}")
    return RepNCSPELAN4(x.channels, out, mid, part, count), Feature(out, x.stride)


def _aconv(site: Site, inputs: Sequence[Feature], args: Sequence[Any]) -> Built:
    x = site.one(inputs)
    (out,) = site.numbers(args, ("output channels",))
    return AConv(x.channels, out), Feature(out, x.stride * 2)


def _adown(site: Site, inputs: Sequence[Feature], args: Sequence[Any]) -> Built:
    x = site.one(inputs)
    (out,) = site.numbers(args, ("output channels",))
    site.even("input channels", x.channels)
    site.even("output channels", out)
    return ADown(x.channels, out), Feature(out, x.stride * 2)


def _sppelan(site: Site, inputs: Sequence[Feature], args: Sequence[Any]) -> Built:
    x = site.one(inputs)
    out, mid = site.numbers(args, ("output channels", "middle channels"))
    return SPPELAN(x.channels, out, mid), Feature(out, x.stride)


def _upsample(site: Site, inputs: Sequence[Feature], args: Sequence[Any]) -> Built:
    x = site.one(inputs)
    if list(args) not in ([None, 2, "nearest"], [2]):
        site.fail(f"args are {short(list(args))}", "[null, 2, nearest]")
    return Upsample(), Feature(x.channels, x.stride / 2)


def _concat(site: Site, inputs: Sequence[Feature], args: Sequence[Any]) -> Built:
    if list(args) not in ([1], []):
        site.fail(f"args are {short(list(args))}", "[1]: concatenation along the channels")
    if len(inputs) < 2 or any(x.pieces for x in inputs):
        site.fail("from does not give two or more tensors", "a list of at least two rows, none of them CBLinear")
    _same_stride(site, inputs)
    return Concat(), Feature(sum(x.channels for x in inputs), inputs[0].stride)


def _silence(site: Site, inputs: Sequence[Feature], args: Sequence[Any]) -> Built:
    x = site.one(inputs)
    site.numbers(args, ())
    return Silence(), x


def _cblinear(site: Site, inputs: Sequence[Feature], args: Sequence[Any]) -> Built:
    x = site.one(inputs)
    if len(args) != 1 or not isinstance(args[0], (list, tuple)) or not args[0]:
        site.fail(f"args are {short(list(args))}", "[[width, width, ...]]")
    widths = site.numbers(args[0], [f"width {i}" for i in range(len(args[0]))])
    return CBLinear(x.channels, widths), Feature(sum(widths), x.stride, tuple(widths))


def _cbfuse(site: Site, inputs: Sequence[Feature], args: Sequence[Any]) -> Built:
    picks = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else None
    lists, target = inputs[:-1], inputs[-1]
    if picks is None or len(picks) != len(lists) or not lists:
        site.fail(
            f"args are {short(list(args))} for {len(inputs)} inputs",
            "[[pick, ...]] with a pick for every input but the last",
        )
    if target.pieces or not all(x.pieces for x in lists):
        site.fail("from gives other kinds of inputs", "CBLinear rows, and one ordinary row at the end")
    for x, pick in zip(lists, picks, strict=True):
        if not isinstance(pick, int) or isinstance(pick, bool) or not 0 <= pick < len(x.pieces):
            site.fail(f"pick {short(pick)} of {len(x.pieces)} pieces", f"a number from 0 to {len(x.pieces) - 1}")
        if x.pieces[pick] != target.channels:
            site.fail(f"picks {x.pieces[pick]} channels for {target.channels}", "pieces as wide as the last input")
    return CBFuse(picks), target


def _same_stride(site: Site, inputs: Sequence[Feature]) -> None:
    strides = [str(x.stride) for x in inputs]
    if len(set(strides)) > 1:
        site.fail(
            f"inputs have {', '.join(strides)} pixels a cell", "inputs of one size; check Upsample and stride-2 rows"
        )


def _head(head: type[DDetect] | type[DualDDetect]) -> Maker:
    def make(site: Site, inputs: Sequence[Feature], args: Sequence[Any]) -> Built:
        if len(args) > 1 or (args and args[0] != "nc" and args[0] != site.graph.nc and not isinstance(args[0], int)):
            site.fail(f"args are {short(list(args))}", "[nc]")
        if any(x.pieces for x in inputs):
            site.fail("from names a CBLinear row", "rows that give one tensor")
        levels = len(inputs) // 2 if head.is_dual else len(inputs)
        if not levels or (head.is_dual and len(inputs) % 2):
            site.fail(f"{len(inputs)} inputs", "as many auxiliary rows as main rows, auxiliary ones first")
        strides = [x.stride for x in inputs[-levels:]]
        if head.is_dual and [x.stride for x in inputs[:levels]] != strides:
            site.fail("auxiliary and main rows differ in size", "the same pixels a cell, level by level, in both parts")
        if any(s.denominator != 1 for s in strides) or sorted(set(strides)) != strides:
            site.fail(
                f"levels have {', '.join(map(str, strides))} pixels a cell", "whole, rising numbers, finest level first"
            )
        channels = [x.channels for x in inputs]
        module = head(site.graph.nc, channels, [int(s) for s in strides], site.graph.class_width)
        return module, Feature(sum(channels), strides[-1])

    return make


MAKERS: dict[str, Maker] = {
    "Conv": _conv,
    "ELAN1": _elan1,
    "RepNCSPELAN4": _rep_elan,
    "AConv": _aconv,
    "ADown": _adown,
    "SPPELAN": _sppelan,
    "Upsample": _upsample,
    "Concat": _concat,
    "Silence": _silence,
    "CBLinear": _cblinear,
    "CBFuse": _cbfuse,
    "DDetect": _head(DDetect),
    "DualDDetect": _head(DualDDetect),
}
"""Block types by the name that graph rows use."""
REPEATABLE = frozenset(("Conv", "ELAN1", "RepNCSPELAN4", "AConv", "ADown", "SPPELAN"))
"""Types that may be repeated in one row: the later ones read the output of the one before."""
LIST_TYPES = frozenset(("Concat", "CBFuse"))
"""Types whose module takes a list, even of one input."""


def make_layer(graph: Graph, number: int, inputs: Sequence[Feature]) -> Built:
    """Module and output of row `number`.

    Raises:
        UserError: the row asks for something its type or its inputs do not allow.
    """
    site, row = Site(graph, number), graph.rows[number]
    if row.type not in MAKERS:
        site.fail("this type is not known", "one of: " + ", ".join(MAKERS))
    if (row.type in HEAD_TYPES) != (number == len(graph.rows) - 1):
        site.fail("the last row, and no other, has to be the head", "DDetect or DualDDetect as the last row")
    if row.repeats > 1 and row.type not in REPEATABLE:
        site.fail(f"repeats is {row.repeats}", "1 for this type")
    module, feature = MAKERS[row.type](site, inputs, row.args)
    if row.repeats == 1:
        return module, feature
    modules = [module]
    for _ in range(row.repeats - 1):
        module, feature = MAKERS[row.type](site, [feature], row.args)
        modules.append(module)
    return nn.Sequential(*modules), feature


def head_of(module: nn.Module) -> DetectionHead:
    """The head among a graph's modules, with its type."""
    assert isinstance(module, DetectionHead)
    return module
