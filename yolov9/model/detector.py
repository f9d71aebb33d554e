"""The detector: runs the rows of a graph in order and its head at the end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from yolov9.model.graph import IMAGE, Graph
from yolov9.model.head import REG_MAX, DetectionHead, DualDDetect, Level, Levels, RawMaps, join_levels
from yolov9.model.layer_types import LIST_TYPES, head_of
from yolov9.model.routing import Upsample
from yolov9.ops.fan_out import fan_out
from yolov9.ops.lanes import AUXILIARY, Lane
from yolov9.ops.recompute import is_remembered


@dataclass(frozen=True)
class _Step:
    """Run layer `number` on `sources`, then forget the outputs in `release`: nothing reads them later."""

    number: int
    sources: tuple[int, ...]
    takes_list: bool
    release: tuple[int, ...]


def _needed(graph: Graph, wanted: Sequence[int]) -> list[int]:
    """Layers needed for the rows in `wanted`, in order."""
    needed = set(wanted)
    for number in range(len(graph.rows) - 2, -1, -1):
        if number in needed:
            needed.update(graph.rows[number].sources)
    return sorted(n for n in needed if n != IMAGE)


def _steps(graph: Graph, numbers: Sequence[int], wanted: Sequence[int]) -> tuple[_Step, ...]:
    """The layers `numbers`, to be run in that order for the rows in `wanted`."""
    last_use = {source: number for number in numbers for source in graph.rows[number].sources}
    steps = []
    for number in numbers:
        row = graph.rows[number]
        release = tuple({s for s in row.sources if last_use[s] == number and s not in wanted})
        steps.append(_Step(number, row.sources, row.type in LIST_TYPES, release))
    return tuple(steps)


def _read(outputs: dict[int, Any], row: int, *, last: bool) -> Any:
    """Returns an output for one of its readers, and keeps it for those after it unless this is the last one."""
    output = outputs[row]
    if not last and isinstance(output, Tensor):
        output, outputs[row] = fan_out(output)
    return output


def _leave_to_concat(graph: Graph, layers: Sequence[nn.Module]) -> None:
    """Has a Concat enlarge what only it reads of an Upsample: one pass over memory instead of two."""
    kinds = [row.type for row in graph.rows]
    for number, layer in enumerate(layers):
        readers = [reader for reader, row in enumerate(graph.rows) if number in row.sources]
        if isinstance(layer, Upsample) and len(readers) == 1 and kinds[readers[0]] == "Concat":
            others = graph.rows[readers[0]].sources
            layer.left_to_concat = any(source == IMAGE or kinds[source] != "Upsample" for source in others)


@dataclass(frozen=True)
class _DualSteps:
    """All layers of a dual model: those that both parts need come first, then each part's own."""

    shared: tuple[_Step, ...]
    main: tuple[_Step, ...]
    aux: tuple[_Step, ...]
    crossing: tuple[int, ...]
    """Rows of the first and second group that the auxiliary part reads."""

    @classmethod
    def of(cls, graph: Graph, levels: int) -> "_DualSteps":
        wanted = graph.rows[-1].sources
        main, every = _needed(graph, wanted[-levels:]), _needed(graph, wanted)
        aux = sorted(set(every) - set(main))
        crossing = tuple({s for n in aux for s in graph.rows[n].sources}.union(wanted[:-levels]) - set(aux))
        fork = max((s for s in crossing if s != IMAGE), default=IMAGE)
        order = [n for n in main if n <= fork], [n for n in main if n > fork], aux
        steps = iter(_steps(graph, [n for group in order for n in group], wanted))
        shared, own, beside = (tuple(next(steps) for _ in group) for group in order)
        return cls(shared, own, beside, crossing)


def _numbers(classes: int) -> list[str]:
    return [str(number) for number in range(classes)]


class DetectionModel(nn.Module):
    """YOLOv9 detector built from a graph; the state dict has the names of the original models.

    Pictures are B x 3 x H x W, RGB, 0 to 1; H and W are multiples of the coarsest stride.

    Args:
        graph: the graph that the layers were built from.
        layers: one module a row of the graph, the head last.
        row_strides: pixels a cell of each row's output, without the head.
    """

    reg_max = REG_MAX

    def __init__(self, graph: Graph, layers: Sequence[nn.Module], row_strides: Sequence[Fraction]) -> None:
        super().__init__()
        self.model = nn.ModuleList(layers)
        self.spec = graph
        self.row_strides = tuple(row_strides)
        self.graph: dict[str, Any] = graph.as_dict()
        self.graph_name = graph.name
        self.nc = graph.nc
        self.names = _numbers(graph.nc)
        """Class names, numbers until the caller sets those of the data set."""
        self.is_dual = self.head.is_dual
        with torch.device("cpu"):
            self.stride = torch.tensor([float(s) for s in self.head.strides])
        sources = graph.rows[-1].sources
        self._levels = len(self.head.strides)
        self._sources = sources
        self._main_sources = sources[-self._levels :]
        _leave_to_concat(graph, layers)
        self._main_steps = _steps(graph, _needed(graph, self._main_sources), self._main_sources)
        self._dual_steps = _DualSteps.of(graph, self._levels)

    @property
    def head(self) -> DetectionHead:
        """The detection head, which is the last layer."""
        return head_of(self.model[-1])

    @property
    def has_class_names(self) -> bool:
        """Classes are called by more than their numbers."""
        return self.names != _numbers(self.nc)

    @property
    def class_width(self) -> int | None:
        """Width of the class branches where it is not the default of the number of classes."""
        return self.spec.class_width

    def _run(self, steps: Sequence[_Step], outputs: dict[int, Any]) -> None:
        """Runs layers in order; reads their inputs in `outputs`, by row, and leaves there what is needed later."""
        for step in steps:
            inputs = [_read(outputs, source, last=source in step.release) for source in step.sources]
            outputs[step.number] = self.model[step.number](inputs if step.takes_list else inputs[0])
            for source in step.release:
                del outputs[source]

    def _run_part(
        self,
        steps: Sequence[_Step],
        outputs: dict[int, Any],
        sources: Sequence[int],
        head: Callable[[int, tuple[Tensor, Tensor]], Level],
    ) -> Levels:
        """Runs the layers of a part, and its head beside them as soon as the feature of a level is there."""
        lanes: dict[int, Lane] = {}
        levels: dict[int, Level] = {}

        def run_head(level: int) -> None:
            feature = _read(outputs, sources[level], last=False)
            # Each lane has memory of its own, which counts where features are not even kept.
            beside = not self.head.is_last(level) and not is_remembered(feature)
            lanes[level] = Lane(f"level {level}", wanted=beside)
            uses = fan_out(feature)
            with lanes[level].run(uses):
                levels[level] = head(level, uses)

        for level, source in enumerate(sources):
            if source in outputs:
                run_head(level)
        for step in steps:
            self._run([step], outputs)
            if step.number in sources:
                run_head(sources.index(step.number))
        for level, lane in lanes.items():
            lane.join(levels[level])
        return [levels[level] for level in range(len(sources))]

    def main_maps(self, x: Tensor) -> RawMaps:
        """Raw maps of the main part (B x (64 + nc) x H/stride x W/stride, finest first); nothing else is computed."""
        return join_levels(self._run_part(self._main_steps, {IMAGE: x}, self._main_sources, self.head.main_level))

    def dual_maps(self, x: Tensor) -> tuple[RawMaps, RawMaps]:
        """Raw maps of the auxiliary and of the main part of a dual model."""
        aux, main = self.levels(x)
        Lane(AUXILIARY, fork=False).join(tensor for level in aux for tensor in level)
        return join_levels(aux), join_levels(main)

    def levels(self, x: Tensor) -> tuple[Levels, ...]:
        """What the loss is made of: the main part, or (auxiliary, main) of a dual model.

        Inside `use_lanes` the auxiliary tensors belong to the lane `AUXILIARY`, which goes on to their loss.
        """
        head, steps = self.head, self._dual_steps
        outputs = {IMAGE: x}
        self._run(steps.shared, outputs)
        if not isinstance(head, DualDDetect):
            return (self._run_part(steps.main, outputs, self._main_sources, head.main_level),)
        lane = Lane(AUXILIARY)
        main = self._run_part(steps.main, outputs, self._main_sources, head.main_level)
        with lane.run([outputs[source] for source in steps.crossing]):
            aux = self._run_part(steps.aux, outputs, self._sources[: self._levels], head.aux_level)
        return aux, main

    def predict_with_raw(self, x: Tensor) -> tuple[Tensor, RawMaps]:
        """Decoded predictions of the main part, and the raw maps they come from (for a validation loss)."""
        maps = self.main_maps(x)
        return self.head.decode(maps), maps

    def forward(
        self, x: Tensor, *, with_aux: bool = False
    ) -> Tensor | tuple[Tensor, Tensor] | RawMaps | tuple[RawMaps, RawMaps]:
        """Raw maps in training mode, decoded predictions in evaluation mode.

        Args:
            x: pictures.
            with_aux: in evaluation mode of a dual model, decode the auxiliary part too.

        Returns:
            Training: raw maps; (auxiliary, main) of a dual model. Evaluation: B x (4 + nc) x N of the main part, or
            (auxiliary, main) with `with_aux`.
        """
        if self.training:
            return self.dual_maps(x) if self.is_dual else self.main_maps(x)
        if with_aux:
            aux, main = self.dual_maps(x)
            return self.head.decode(aux, aux=True), self.head.decode(main)
        return self.head.decode(self.main_maps(x))
