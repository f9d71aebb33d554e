"""parity/reparam: the single model inside a dual one, tensor by tensor."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from yolov9.model import build_model, convert
from yolov9.model.main_branch import main_branch

SIZES = ["t", "s", "c"]


@pytest.fixture(params=SIZES)
def facts(request: pytest.FixtureRequest, parity_dir: Path) -> dict[str, Any]:
    return dict(json.loads((parity_dir / "reparam" / f"{request.param}.json").read_text()))


def test_every_reparam_file_is_exercised(parity_dir: Path) -> None:
    assert sorted(p.stem for p in (parity_dir / "reparam").iterdir()) == sorted(SIZES)


def test_tensors_of_the_single_model_come_from_these_of_the_dual_one(facts: dict[str, Any]) -> None:
    with torch.device("meta"):
        dual, single = build_model(facts["dual"]), build_model(facts["single"])
    branch = main_branch(dual.spec)
    pairs = [[name, branch.own_name(name)] for name in single.state_dict()]
    assert pairs == facts["pairs_single_dual"]
    used = {own for _, own in pairs}
    assert [name for name in sorted(dual.state_dict()) if name not in used] == sorted(facts["dual_keys_unused"])
    with_weights = {number for number, layer in enumerate(single.model) if layer.state_dict()}
    layers = {str(new): old for new, old in branch.origin.items() if new in with_weights}
    assert layers == facts["layer_map_single_to_dual"]


def test_converted_model_gives_the_main_output_exactly(
    facts: dict[str, Any], fill_weights: Callable[..., nn.Module], model_input: Any
) -> None:
    with torch.device("meta"):
        dual = build_model(facts["dual"], nc=3)
    fill_weights(dual).eval()
    single = convert(dual)
    picture = model_input(5, (1, 3, 64, 96))
    with torch.no_grad():
        difference = (single(picture) - dual(picture)).abs().max().item()
    assert difference == facts["max_abs_diff_single_vs_dual_main"]
    assert single.graph_name == facts["single"]


@pytest.mark.parametrize("size", "tsmce")
def test_main_branch_of_every_dual_graph_is_the_single_graph(size: str) -> None:
    with torch.device("meta"):
        dual, single = build_model(f"yolov9-{size}"), build_model(f"gelan-{size}")
    assert main_branch(dual.spec).graph == single.spec
