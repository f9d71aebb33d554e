"""parity/checkpoints: files of the original code, read without running their pickles."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from yolov9.model import build_model, load_weights, read_checkpoint
from yolov9.model.pickle_values import Inert
from yolov9.model.weight_file import WeightFile

TRAINING, CONVERTED = "yolov9-t-nc3-last", "gelan-t-nc3-converted"
BOX_PX, SCORE = 2e-3, 2e-5
EMA_SHIFT = 0.03125
"""The running average of the training file is the model plus this on every bn.weight and bn.bias, before rounding."""


@pytest.fixture(scope="module")
def facts(parity_dir: Path) -> dict[str, Any]:
    return dict(json.loads((parity_dir / "checkpoints" / "facts.json").read_text()))


def check(prediction: torch.Tensor, expected: np.ndarray) -> None:
    np.testing.assert_allclose(prediction[:, :4], expected[:, :4], rtol=0, atol=BOX_PX)
    np.testing.assert_allclose(prediction[:, 4:], expected[:, 4:], rtol=0, atol=SCORE)


def test_every_checkpoint_file_is_exercised(parity_dir: Path) -> None:
    names = [f"{stem}.{ending}" for stem in (TRAINING, CONVERTED) for ending in ("npz", "pt")]
    assert sorted(p.name for p in (parity_dir / "checkpoints").iterdir()) == sorted([*names, "facts.json"])


def test_training_file_gives_the_running_average(parity_dir: Path, facts: dict[str, Any], model_input: Any) -> None:
    known = facts[f"{TRAINING}.pt"]
    model = load_weights(parity_dir / "checkpoints" / f"{TRAINING}.pt")
    expected = np.load(parity_dir / "checkpoints" / f"{TRAINING}.npz")
    with torch.no_grad():
        aux, main = model(model_input(known["input_seed"], known["input_shape"]), with_aux=True)
    check(main, expected["ema_eval_main"])
    check(aux, expected["ema_eval_aux"])
    assert model.names == list(known["model_names"].values())
    assert (model.nc, model.stride.tolist(), model.is_dual) == (known["model_nc"], known["stride"], True)
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_the_plain_model_of_the_training_file_differs_in_the_norms_only(
    parity_dir: Path, facts: dict[str, Any], model_input: Any, fill_weights: Callable[..., nn.Module]
) -> None:
    known = facts[f"{TRAINING}.pt"]
    with torch.device("meta"):
        model = build_model("yolov9-t", nc=known["model_nc"]).eval()
    fill_weights(model, known["weights_salt"])
    model.half().float()
    expected = np.load(parity_dir / "checkpoints" / f"{TRAINING}.npz")
    with torch.no_grad():
        aux, main = model(model_input(known["input_seed"], known["input_shape"]), with_aux=True)
    check(main, expected["model_eval_main"])
    check(aux, expected["model_eval_aux"])
    average = read_checkpoint(parity_dir / "checkpoints" / f"{TRAINING}.pt").state_dict
    for name, value in model.state_dict().items():
        shift = EMA_SHIFT if name.endswith(("bn.weight", "bn.bias")) else 0.0
        torch.testing.assert_close(average[name], value + shift if shift else value, rtol=0, atol=1e-3 if shift else 0)


def test_converted_file(parity_dir: Path, facts: dict[str, Any], model_input: Any) -> None:
    known = facts[f"{CONVERTED}.pt"]
    model = load_weights(parity_dir / "checkpoints" / f"{CONVERTED}.pt")
    with torch.no_grad():
        main = model(model_input(known["input_seed"], known["input_shape"]))
    check(main, np.load(parity_dir / "checkpoints" / f"{CONVERTED}.npz")["model_eval_main"])
    assert model.names == known["model_names"]
    assert (model.nc, model.stride.tolist(), model.is_dual) == (known["model_nc"], known["stride"], False)


@pytest.mark.parametrize("stem", [TRAINING, CONVERTED])
def test_content_is_what_the_facts_say(stem: str, parity_dir: Path, facts: dict[str, Any]) -> None:
    known = facts[f"{stem}.pt"]
    path = parity_dir / "checkpoints" / f"{stem}.pt"
    assert path.stat().st_size == known["bytes"]
    with WeightFile(path) as file:
        root = file.root
    assert list(root) == list(known["top_level"])
    assert str(root["model"].kind) == known["class_of_model"]
    found: dict[str, set[str]] = {}
    _attributes(root["model"], found)
    assert {kind: sorted(names) for kind, names in found.items()} == known["public_attributes_by_module_class"]


def _attributes(module: Inert, found: dict[str, set[str]]) -> None:
    """Public attributes of every module class below `module`."""
    found.setdefault(str(module.kind), set()).update(name for name in module.state if not name.startswith("_"))
    for child in module.state["_modules"].values():
        _attributes(child, found)


def test_training_file_says_its_epoch_and_graph(parity_dir: Path, facts: dict[str, Any]) -> None:
    checkpoint = read_checkpoint(parity_dir / "checkpoints" / f"{TRAINING}.pt")
    assert (checkpoint.kind, checkpoint.form, checkpoint.class_width) == ("dual", "original", None)
    assert checkpoint.epoch == facts[f"{TRAINING}.pt"]["epoch"]
    assert checkpoint.graph["layers"] == build_model("yolov9-t").graph["layers"]
    assert read_checkpoint(parity_dir / "checkpoints" / f"{CONVERTED}.pt").epoch is None
