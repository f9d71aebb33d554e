"""A user's own graph: what builds, and which layer a mistake is blamed on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from yolov9.errors import UserError
from yolov9.model import build_model

Rows = list[list[Any]]


def test_backbone_and_head_lists_are_one_graph(tiny_graph: dict[str, Any], graph_file: Callable[..., Path]) -> None:
    rows = tiny_graph.pop("layers")
    known_form = {
        "nc": 3,
        "depth_multiple": 1.0,
        "width_multiple": 1.0,
        "anchors": 3,
        "backbone": rows[:7],
        "head": rows[7:],
    }
    model = build_model(graph_file(known_form))
    assert model.graph["layers"] == build_model({"nc": 3, "layers": rows}).graph["layers"]
    assert model.eval()(torch.zeros(1, 3, 64, 64)).shape == (1, 7, 64 + 16 + 4)


def test_spellings_of_older_graph_files_build(tiny_graph: dict[str, Any]) -> None:
    tiny_graph["layers"][7] = [-1, 1, "nn.Upsample", ["None", 2, "nearest"]]
    tiny_graph["layers"][9][3] = [3]
    assert build_model(tiny_graph).graph == build_model({**tiny_graph, "name": "custom"}).graph


def test_graph_of_a_model_builds_it_again() -> None:
    with torch.device("meta"):
        model = build_model("yolov9-e", nc=7, class_width=96)
        again = build_model(model.graph)
    assert again.spec == model.spec
    assert [(k, v.shape) for k, v in again.state_dict().items()] == [
        (k, v.shape) for k, v in model.state_dict().items()
    ]


def test_classes_given_by_the_caller_win(tiny_graph: dict[str, Any]) -> None:
    assert build_model(tiny_graph).nc == 3
    assert build_model(tiny_graph, nc=5).eval()(torch.zeros(1, 3, 64, 64)).shape[1] == 9


def test_width_multiple_scales_outputs_to_multiples_of_eight(tiny_graph: dict[str, Any]) -> None:
    model = build_model({**tiny_graph, "width_multiple": 1.3})
    assert model.state_dict()["model.0.conv.weight"].shape == (24, 3, 3, 3)
    assert model.state_dict()["model.3.cv1.conv.weight"].shape == (16, 24, 1, 1)


def test_depth_multiple_scales_repeats(tiny_graph: dict[str, Any]) -> None:
    tiny_graph["layers"][1] = [-1, 1, "Conv", [16, 3, 2]]
    tiny_graph["layers"][3] = [-1, 4, "RepNCSPELAN4", [16, 16, 8, 1]]
    model = build_model({**tiny_graph, "depth_multiple": 0.5})
    assert model.graph["layers"][3][1] == 2
    assert "model.3.1.cv4.conv.weight" in model.state_dict()


def test_repeated_rows_read_the_one_before(tiny_graph: dict[str, Any]) -> None:
    tiny_graph["layers"][3] = [-1, 2, "Conv", [24, 3]]
    tiny_graph["layers"][1] = [-1, 2, "Conv", [16, 3, 2]]
    tiny_graph["layers"][2] = [-1, 1, "Conv", [16]]
    model = build_model(tiny_graph)
    assert model.state_dict()["model.3.1.conv.weight"].shape == (24, 24, 3, 3)
    assert model.stride.tolist() == [8, 16, 32]


def test_four_levels_build() -> None:
    rows: Rows = [[-1, 1, "Conv", [8, 3, 2]], [-1, 1, "Conv", [8, 3, 2]]]
    rows += [[-1, 1, "AConv", [8]] for _ in range(3)]
    rows.append([[1, 2, 3, 4], 1, "DDetect", ["nc"]])
    model = build_model({"nc": 2, "layers": rows})
    assert model.stride.tolist() == [4, 8, 16, 32]
    assert model.eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 6, 64 + 16 + 4 + 1)


def _doubled(depth: int) -> list[Any]:
    """A list that would fill the memory if it was printed: every level holds the one before twice."""
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested, nested]
    return nested


MISTAKES: dict[str, tuple[int, list[Any], str]] = {
    "unknown type": (3, [-1, 1, "Attention", [16]], r"layer 3 \(Attention\).*not known"),
    "later row": (3, [5, 1, "Conv", [16]], r"layer 3 \(Conv\).*from 5"),
    "own row": (3, [3, 1, "Conv", [16]], r"layer 3 \(Conv\).*from 3"),
    "before the picture": (3, [-9, 1, "Conv", [16]], r"layer 3 \(Conv\).*from -9"),
    "from is a word": (3, ["last", 1, "Conv", [16]], r"layer 3 \(Conv\).*from is 'last'"),
    "no repeats": (3, [-1, 0, "Conv", [16]], r"layer 3 \(Conv\).*repeats is 0"),
    "too many repeats": (3, [-1, 10**9, "Conv", [16]], r"layer 3 \(Conv\).*repeats"),
    "repeated Concat": (8, [[-1, 4], 2, "Concat", [1]], r"layer 8 \(Concat\).*repeats is 2"),
    "three fields": (3, [-1, 1, "Conv"], r"layer 3: "),
    "type is a number": (3, [-1, 1, 7, [16]], r"layer 3: type is 7"),
    "args are a number": (3, [-1, 1, "Conv", 16], r"layer 3 \(Conv\).*args are 16"),
    "too few args": (3, [-1, 1, "ELAN1", [16]], r"layer 3 \(ELAN1\).*1 arguments"),
    "too many args": (3, [-1, 1, "Conv", [16, 3, 2, 1]], r"layer 3 \(Conv\).*4 arguments"),
    "even kernel": (3, [-1, 1, "Conv", [16, 4, 1]], r"layer 3 \(Conv\).*kernel is 4"),
    "nested without end": (3, [-1, 1, "Conv", [_doubled(60)]], r"layer 3 \(Conv\).*output channels"),
    "no channels": (3, [-1, 1, "Conv", [0]], r"layer 3 \(Conv\).*output channels is 0"),
    "channels as text": (3, [-1, 1, "Conv", ["16"]], r"layer 3 \(Conv\).*output channels is '16'"),
    "endless channels": (3, [-1, 1, "Conv", [10**12]], r"layer 3 \(Conv\).*output channels"),
    "odd halves": (3, [-1, 1, "ELAN1", [16, 15, 8]], r"layer 3 \(ELAN1\).*middle channels is 15"),
    "endless bottlenecks": (3, [-1, 1, "RepNCSPELAN4", [16, 16, 8, 5000]], r"layer 3 .*bottlenecks is 5000"),
    "two inputs": (3, [[1, 2], 1, "Conv", [16]], r"layer 3 \(Conv\).*2 inputs"),
    "one input of Concat": (8, [-1, 1, "Concat", [1]], r"layer 8 \(Concat\).*two or more"),
    "sizes of Concat": (8, [[-1, 6], 1, "Concat", [1]], r"layer 8 \(Concat\).*16, 32 pixels"),
    "axis of Concat": (8, [[-1, 4], 1, "Concat", [2]], r"layer 8 \(Concat\).*\[2\]"),
    "upsampling by three": (7, [-1, 1, "Upsample", [None, 3, "nearest"]], r"layer 7 \(Upsample\)"),
    "pieces of no list": (3, [-1, 1, "CBLinear", [16]], r"layer 3 \(CBLinear\)"),
    "pieces into a Conv": (3, [-1, 1, "CBLinear", [[16, 16]]], r"layer 4 \(ADown\).*list of CBLinear pieces"),
    "fuse without pieces": (8, [[4, 7], 1, "CBFuse", [[0]]], r"layer 8 \(CBFuse\).*other kinds"),
    "head in the middle": (3, [-1, 1, "DDetect", ["nc"]], r"layer 3 \(DDetect\).*last row"),
    "no head": (9, [-1, 1, "Conv", [16]], r"layer 9 \(Conv\).*last row"),
    "head classes": (9, [[3, 8, 6], 1, "DDetect", [4]], r"head: 4 classes"),
    "head order": (9, [[6, 8, 3], 1, "DDetect", ["nc"]], r"layer 9 \(DDetect\).*32, 16, 8 pixels"),
    "odd dual head": (9, [[3, 8, 6], 1, "DualDDetect", ["nc"]], r"layer 9 \(DualDDetect\).*3 inputs"),
    "dual parts differ": (9, [[2, 3, 8, 3, 8, 6], 1, "DualDDetect", ["nc"]], r"layer 9 .*differ in size"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_names_its_layer(mistake: str, tiny_graph: dict[str, Any]) -> None:
    number, row, pattern = MISTAKES[mistake]
    tiny_graph["layers"][number] = row
    with pytest.raises(UserError, match=pattern):
        build_model(tiny_graph)


def test_mistake_in_a_file_names_the_file(tiny_graph: dict[str, Any], graph_file: Callable[..., Path]) -> None:
    tiny_graph["layers"][3] = [-1, 1, "Attention", [16]]
    with pytest.raises(UserError, match="graph mine, layer 3"):
        build_model(graph_file(tiny_graph))


def test_repeats_count_as_rows(tiny_graph: dict[str, Any]) -> None:
    tiny_graph["layers"][0:0] = [[-1, 100, "Conv", [8]] for _ in range(6)]
    tiny_graph["layers"] = [[-1, *row[1:]] if isinstance(row[0], int) else row for row in tiny_graph["layers"]]
    with pytest.raises(UserError, match="at most 500"):
        build_model(tiny_graph)


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        ({"activation": "nn.ReLU()"}, "key 'activation'"),
        ({"ch": 1}, "key 'ch'"),
        ({"nc": 0}, "key 'nc'"),
        ({"nc": True}, "key 'nc'"),
        ({"width_multiple": "half"}, "key 'width_multiple'"),
        ({"depth_multiple": 0}, "key 'depth_multiple'"),
        ({"class_width": 0.5}, "key 'class_width'"),
        ({"layers": {"a": 1}}, "key 'layers'"),
        ({"layers": []}, "0 of them"),
        ({"layers": None}, "key 'layers'"),
    ],
)
def test_mistake_in_a_key_is_named(change: dict[str, Any], pattern: str, tiny_graph: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=pattern):
        build_model({**tiny_graph, **change})


def test_fuse_picks_are_checked() -> None:
    rows: Rows = [
        [-1, 1, "Conv", [8, 3, 2]],
        [-1, 1, "Conv", [8, 3, 2]],
        [0, 1, "CBLinear", [[8, 16]]],
        [[2, 1], 1, "CBFuse", [[0]]],
        [[3], 1, "DDetect", ["nc"]],
    ]
    assert build_model({"nc": 1, "layers": rows}).eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 5, 64)
    for picks, words in (([1], "picks 16 channels for 8"), ([2], "pick 2 of 2"), ([0, 0], "args are")):
        rows[3][3] = [picks]
        with pytest.raises(UserError, match=rf"layer 3 \(CBFuse\).*{words}"):
            build_model({"nc": 1, "layers": rows})


def test_impossible_number_of_classes(tiny_graph: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="0 classes"):
        build_model(tiny_graph, nc=0)
