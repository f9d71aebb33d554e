"""parity/structure: names, shapes, tables, sizes and first values of all ten graphs."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from yolov9.model import DetectionModel, build_model, count_gflops, count_parameters, fuse

NAMES = [f"{family}-{size}" for family in ("yolov9", "gelan") for size in "tsmce"]
NARROW = "gelan-t-cls80"
PROFILER_NORM, PROFILER_UPSAMPLE = 8, 2
"""Operations an output element that the reference's profiler adds for batch norms and for upsampling."""
GIGA_DIGIT = 0.000501
"""Half of the last digit that the fixtures give of 10^9 operations."""
PUBLISHED = {
    "yolov9-c": (51.0, 238.9, False),
    "yolov9-e": (69.4, 244.9, False),
    "gelan-t-cls80": (2.0, 7.7, True),
    "gelan-s": (7.1, 26.4, True),
    "gelan-m": (20.0, 76.3, True),
    "gelan-c": (25.3, 102.1, True),
    "gelan-e": (57.3, 189.0, True),
}
"""Millions of parameters, 10^9 operations, folded or not: training logs and the table of the released weights."""


@cache
def shapes_only(name: str) -> DetectionModel:
    with torch.device("meta"):
        return build_model(name).eval()


@cache
def folded(name: str) -> DetectionModel:
    return fuse(shapes_only(name))


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=NAMES)
def built(request: pytest.FixtureRequest) -> DetectionModel:
    """A real model; one at a time is in memory."""
    return build_model(request.param).eval()


def structure(parity_dir: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((parity_dir / "structure" / f"{name}.json").read_text()))


@pytest.fixture
def facts(name: str, parity_dir: Path) -> dict[str, Any]:
    return structure(parity_dir, name)


def test_every_structure_file_is_exercised(parity_dir: Path) -> None:
    assert sorted(p.stem for p in (parity_dir / "structure").iterdir()) == sorted([*NAMES, NARROW])


def test_state_dict_has_the_names_shapes_types_and_order(name: str, facts: dict[str, Any]) -> None:
    state = shapes_only(name).state_dict()
    assert [[k, list(v.shape), str(v.dtype).removeprefix("torch.")] for k, v in state.items()] == facts["state_dict"]
    assert sum(v.numel() for v in state.values()) == facts["state_elements"]


def test_parameter_counts(name: str, facts: dict[str, Any]) -> None:
    model = shapes_only(name)
    assert count_parameters(model) == facts["params_total"]
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == facts["params_trainable"]
    assert [count_parameters(layer) for layer in model.model] == [row["params"] for row in facts["layers"]]


def test_rows_are_those_of_the_layer_table(name: str, facts: dict[str, Any]) -> None:
    with_inputs = {"Conv", "ELAN1", "RepNCSPELAN4", "AConv", "ADown", "SPPELAN", "CBLinear"}
    expected = []
    for i, row in enumerate(facts["layers"]):
        sources = row["from"] if isinstance(row["from"], list) else [row["from"]]
        args = row["args"][1:] if row["type"] in with_inputs else row["args"]
        absolute = [i - 1 if source == -1 else source for source in sources]
        expected.append([absolute, row["repeats"], row["type"], ["nc"] if "DDetect" in row["type"] else args])
    rows = shapes_only(name).spec.rows
    assert [[list(row.sources), row.repeats, row.type, list(row.args)] for row in rows] == expected
    read_later = {s for i, row in enumerate(rows) for s in row.sources if s != i - 1}
    read_at_all = {s for row in rows for s in row.sources}
    assert read_later <= set(facts["kept_layers"]) <= read_at_all


def test_sizes_between_the_rows(built: DetectionModel, parity_dir: Path) -> None:
    seen: dict[int, tuple[Any, Any]] = {}

    def sizes(value: Any) -> Any:
        return list(value.shape[1:]) if isinstance(value, torch.Tensor) else [sizes(v) for v in value]

    def hook(number: int) -> Callable[[nn.Module, Any, Any], None]:
        return lambda module, inputs, output: seen.update({number: (sizes(inputs[0]), sizes(output))})

    hooks = [layer.register_forward_hook(hook(i)) for i, layer in enumerate(built.model[:-1])]
    with torch.no_grad():
        built(torch.zeros(1, 3, 64, 96), with_aux=built.is_dual)
    for h in hooks:
        h.remove()
    rows = structure(parity_dir, built.graph_name)["layers"][:-1]
    assert [seen[r["i"]] for r in rows] == [(r["in_chw_at_64x96"], r["out_chw_at_64x96"]) for r in rows]


def test_convolutions(name: str, facts: dict[str, Any]) -> None:
    def sides(conv: nn.Conv2d) -> tuple[Any, ...]:
        return conv.kernel_size, conv.stride, conv.padding, conv.dilation

    table = [
        [n, m.in_channels, m.out_channels, *map(list, sides(m)), m.groups, m.bias is not None]
        for n, m in shapes_only(name).named_modules()
        if isinstance(m, nn.Conv2d)
    ]
    assert sorted(table) == sorted(facts["convs"])


def test_poolings(name: str, facts: dict[str, Any]) -> None:
    pools = [
        [n, "max", m.kernel_size, m.stride, m.padding]
        for n, m in shapes_only(name).named_modules()
        if isinstance(m, nn.MaxPool2d)
    ]
    assert pools == facts["pools"]


def test_batch_normalisation_settings(name: str, facts: dict[str, Any]) -> None:
    norms = [m for m in shapes_only(name).modules() if isinstance(m, _BatchNorm)]
    keys = facts["batchnorm"][0]
    assert [{key: getattr(norm, key) for key in keys} for norm in norms] == facts["batchnorm"] * len(norms)


def test_head_facts(name: str, facts: dict[str, Any]) -> None:
    model = shapes_only(name)
    sources = list(model.spec.rows[-1].sources)
    assert ("dual" if model.is_dual else "single") == facts["kind"]
    assert (model.nc, model.reg_max, model.nc + 4 * model.reg_max) == (
        facts["nc"],
        facts["reg_max"],
        facts["outputs_per_anchor"],
    )
    assert model.stride.tolist() == facts["strides"]
    assert (len(model.model) - 1, sources) == (facts["head_layer"], facts["head_inputs"])
    if model.is_dual:
        assert (sources[:3], sources[3:]) == (facts["head_inputs_aux"], facts["head_inputs_main"])


def test_first_head_biases(built: DetectionModel, parity_dir: Path) -> None:
    state = built.state_dict()
    expected = structure(parity_dir, built.graph_name)["initial_head_bias_mean_nc80"]
    assert {key: state[key].double().mean().item() for key in expected} == pytest.approx(expected, rel=1e-6)


def test_operations_at_640_px(name: str, facts: dict[str, Any]) -> None:
    model = shapes_only(name)
    for fold, key in ((False, "gflops_640"), (True, "gflops_640_fused")):
        convolutions = count_gflops(model, folded=fold)
        assert convolutions == pytest.approx(facts[key]["conv_2mac"], abs=GIGA_DIGIT)
        rest = _profiler_extra(folded(name) if fold else model, facts["layers"])
        assert convolutions + rest == pytest.approx(facts[key]["thop_2mac_from_32px"], abs=GIGA_DIGIT)


def _profiler_extra(model: DetectionModel, table: list[dict[str, Any]]) -> float:
    """What the profiler counts besides convolutions; sizes follow from the layer table."""

    def norm_channels(module: nn.Module) -> int:
        return sum(m.num_features for m in module.modules() if isinstance(m, _BatchNorm))

    total = 0.0
    for layer, row in zip(model.model[:-1], table, strict=False):
        size = row["out_chw_at_64x96"]
        channels, height, _ = size[0] if isinstance(size[0], list) else size
        cells = (640 * height / 64) ** 2
        total += PROFILER_NORM * norm_channels(layer) * cells
        total += PROFILER_UPSAMPLE * channels * cells if row["type"] == "Upsample" else 0
    for branches in model.head.children():
        for branch, stride in zip(branches.children(), model.head.strides, strict=False):
            total += PROFILER_NORM * norm_channels(branch) * (640 / stride) ** 2
    return total / 1e9


def test_folded_state_dict(name: str, facts: dict[str, Any]) -> None:
    model = folded(name)
    assert [[k, list(v.shape)] for k, v in model.state_dict().items()] == facts["fused_state_dict"]
    assert count_parameters(model) == facts["params_after_fusing"]


@pytest.mark.parametrize("published", PUBLISHED)
def test_published_sizes(published: str) -> None:
    millions, giga, is_folded = PUBLISHED[published]
    model = shapes_only(published)
    assert round(count_parameters(folded(published) if is_folded else model) / 1e6, 1) == pytest.approx(
        millions, abs=0.21
    )
    assert count_gflops(model, folded=is_folded) == pytest.approx(giga, rel=0.005)


def test_narrow_head_of_size_t(parity_dir: Path) -> None:
    facts = structure(parity_dir, NARROW)
    table = structure(parity_dir, "gelan-t")["layers"]
    model = shapes_only(NARROW)
    state = model.state_dict()
    assert [[key, list(state[key].shape)] for key, _ in facts["class_branch_shapes"]] == facts["class_branch_shapes"]
    assert (model.nc, count_parameters(model)) == (facts["nc"], facts["params_total"])
    assert count_parameters(folded(NARROW)) == facts["params_after_fusing"]
    for fold, key in ((False, "gflops_640"), (True, "gflops_640_fused")):
        assert count_gflops(model, folded=fold) == pytest.approx(facts[key]["conv_2mac"], abs=GIGA_DIGIT)
        rest = _profiler_extra(folded(NARROW) if fold else model, table)
        expected = facts[key]["thop_2mac_from_32px"]
        assert count_gflops(model, folded=fold) + rest == pytest.approx(expected, abs=GIGA_DIGIT)
    published = facts["published_for_size_t"]
    assert round(count_parameters(folded(NARROW)) / 1e6, 1) == published["params_millions"]
    assert round(count_gflops(model, folded=True), 1) == published["gflops"]
