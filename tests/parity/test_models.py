"""parity/models: outputs of every model with the deterministic weights."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from yolov9.model import DetectionModel, build_model, fuse

NAMES = [
    *("yolov9-t", "yolov9-s", "yolov9-c", "gelan-t", "gelan-s", "gelan-c"),
    *("yolov9-t-nc4", "gelan-t-nc4", "gelan-t-cls80"),
]
RAW = {"atol": 1e-4, "rtol": 1e-4}
RAW_TRAINING = {"atol": 5e-4, "rtol": 1e-4}
BOX_PX, SCORE = 2e-3, 2e-5
NORM_SUMS = {"rtol": 1e-5, "atol": 1e-4}


@dataclass
class Run:
    """One model, its fixture, and what it computed once for all tests of this file."""

    model: DetectionModel
    facts: dict[str, Any]
    expected: Mapping[str, np.ndarray]
    picture: torch.Tensor
    weights_l2: float
    decoded: dict[str, np.ndarray]
    raw: dict[str, list[torch.Tensor]]
    folded: dict[str, np.ndarray]
    raw_training: dict[str, list[torch.Tensor]]


@pytest.fixture(scope="module", params=NAMES)
def run(
    request: pytest.FixtureRequest, parity_dir: Path, fill_weights: Callable[..., nn.Module], model_input: Any
) -> Run:
    facts = json.loads((parity_dir / "models" / "index.json").read_text())[request.param]
    expected = np.load(parity_dir / "models" / f"{request.param}.npz")
    with torch.device("meta"):
        model = build_model("gelan-t-cls80" if request.param == "gelan-t-cls80" else facts["model"], nc=facts["nc"])
    fill_weights(model)
    squares = sum(float((value.double() ** 2).sum()) for value in model.state_dict().values())
    picture = model_input(facts["input_seed"], facts["input_shape"])
    with torch.no_grad():
        decoded, raw = both(model.eval(), picture)
        folded, _ = both(fuse(model), picture)
        trained = model.train()(picture)
        raw_training = {"aux": trained[0], "main": trained[1]} if model.is_dual else {"main": trained}
    return Run(model, facts, expected, picture, squares**0.5, decoded, raw, folded, raw_training)


def both(model: DetectionModel, picture: torch.Tensor) -> tuple[dict[str, np.ndarray], dict[str, list[torch.Tensor]]]:
    """Decoded predictions and raw maps of the parts of a model in evaluation mode."""
    main, maps = model.predict_with_raw(picture)
    if not model.is_dual:
        return {"main": main.numpy()}, {"main": maps}
    aux, _ = model(picture, with_aux=True)
    return {"main": main.numpy(), "aux": aux.numpy()}, {"main": maps, "aux": model.dual_maps(picture)[0]}


def check_decoded(decoded: dict[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert {f"eval_{role}" for role in decoded} == {key for key in expected if key in ("eval_main", "eval_aux")}
    for role, value in decoded.items():
        np.testing.assert_allclose(value[:, :4], expected[f"eval_{role}"][:, :4], rtol=0, atol=BOX_PX)
        np.testing.assert_allclose(value[:, 4:], expected[f"eval_{role}"][:, 4:], rtol=0, atol=SCORE)


def check_raw(
    maps: dict[str, list[torch.Tensor]], expected: Mapping[str, np.ndarray], kind: str, **within: float
) -> None:
    keys = {f"{kind}_raw_{role}_{level}": m for role in maps for level, m in enumerate(maps[role])}
    assert set(keys) == {key for key in expected if key.startswith(f"{kind}_raw_")}
    for key, value in keys.items():
        np.testing.assert_allclose(value.numpy(), expected[key], **within)


def test_every_model_file_is_exercised(parity_dir: Path) -> None:
    assert sorted(p.stem for p in (parity_dir / "models").glob("*.npz")) == sorted(NAMES)
    assert sorted(json.loads((parity_dir / "models" / "index.json").read_text())) == sorted(NAMES)


def test_weights_are_those_of_the_fixture(run: Run) -> None:
    assert run.weights_l2 == pytest.approx(run.facts["weights_l2"], rel=1e-6)


def test_decoded_predictions(run: Run) -> None:
    check_decoded(run.decoded, run.expected)
    assert run.decoded["main"].mean(dtype=np.float64) == pytest.approx(run.facts["eval_main_mean"], rel=1e-5)
    assert run.decoded["main"].std(dtype=np.float64, ddof=1) == pytest.approx(run.facts["eval_main_std"], rel=1e-5)


def test_raw_maps_in_evaluation_mode(run: Run) -> None:
    check_raw(run.raw, run.expected, "eval", **RAW)


def test_raw_maps_in_training_mode(run: Run) -> None:
    check_raw(run.raw_training, run.expected, "train", **RAW_TRAINING)


def test_running_statistics_after_one_training_pass(run: Run) -> None:
    state = run.model.state_dict()
    keys = [str(key) for key in run.expected["bn_after_keys"]]
    assert keys == [key for key in state if key.endswith(("running_mean", "running_var"))]
    values = [state[key].double() for key in keys]
    np.testing.assert_allclose([float(v.sum()) for v in values], run.expected["bn_after_sum"], **NORM_SUMS)
    np.testing.assert_allclose([float(v.norm()) for v in values], run.expected["bn_after_l2"], **NORM_SUMS)
    counters = {int(value) for key, value in state.items() if key.endswith("num_batches_tracked")}
    assert counters == set(run.expected["bn_after_num_batches_tracked"].tolist())


def test_folded_model_predicts_the_same(run: Run) -> None:
    check_decoded(run.folded, run.expected)
