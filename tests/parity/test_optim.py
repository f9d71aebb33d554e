"""Schedules, parameter groups, optimizers, EMA and early stopping against all of parity/optim but the train steps."""

import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from yolov9.config.recipe import load_recipe
from yolov9.config.settings import TrainSettings
from yolov9.engine.early_stop import EarlyStop
from yolov9.engine.ema import ModelEma, ema_decay
from yolov9.engine.metrics import fitness
from yolov9.engine.optimizer import build_optimizer, group_parameters
from yolov9.engine.schedule import (
    Schedule,
    lr_shape,
    mosaic_off_epoch,
    optimizer_step_due,
    rounded_accumulation,
    scaled_weight_decay,
)
from yolov9.engine.step import CLIP_NORM
from yolov9.model import build_model

TOLERANCE = 1e-6
CASES = [
    "sgd-linear-b16",
    "sgd-linear-b64",
    "sgd-cosine-b16",
    "sgd-flatcosine-b16",
    "sgd-fixed-b16",
    "sgd-linear-b16-short-epochs",
    "adamw-linear-b32",
    "single-sgd-linear-b16",
    "sgd-linear-b16-close-mosaic-over",
]
FLAG_FIELDS = {"--cos-lr": "cos_lr", "--flat-cos-lr": "flat_cos_lr", "--fixed-lr": "fixed_lr"}
ARRAYS = {
    "lr_bias_group": "lr_bias",
    "lr_weight_group": "lr_weight",
    "lr_norm_group": "lr_norm",
    "momentum": "momentum",
    "accumulate": "accumulate",
}


@pytest.fixture(scope="module")
def facts(parity_dir: Path) -> dict[str, Any]:
    return json.loads((parity_dir / "optim" / "facts.json").read_text())


@pytest.fixture(scope="module")
def cases(parity_dir: Path) -> dict[str, Any]:
    return json.loads((parity_dir / "optim" / "schedules.json").read_text())


def schedule_of(case: dict[str, Any]) -> Schedule:
    settings = TrainSettings(**{FLAG_FIELDS[flag]: True for flag in case["flags"]})
    return Schedule(
        epochs=case["epochs"],
        batches_per_epoch=case["iterations_per_epoch"],
        recipe=load_recipe("scratch-high"),
        shape=lr_shape(settings),
        accumulation_target=64 / case["batch"],
        momentum_warms_up=case["optimizer"] == "SGD",
    )


def test_every_schedule_file_is_a_case(parity_dir: Path, cases: dict[str, Any]) -> None:
    files = {path.stem for path in (parity_dir / "optim").glob("*.npz")}
    assert files == set(CASES) == set(cases)


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("name", CASES)
def test_value_of_every_iteration(parity_dir: Path, cases: dict[str, Any], name: str, array: str) -> None:
    expected = np.load(parity_dir / "optim" / f"{name}.npz")[array]
    schedule = schedule_of(cases[name])
    values = [getattr(schedule.at(i), ARRAYS[array]) for i in range(len(expected))]
    np.testing.assert_allclose(values, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", CASES)
def test_iterations_that_end_with_an_optimizer_step(parity_dir: Path, cases: dict[str, Any], name: str) -> None:
    schedule, last, steps = schedule_of(cases[name]), -1, []
    for iteration in range(schedule.epochs * schedule.batches_per_epoch):
        if optimizer_step_due(iteration, last, schedule.at(iteration).accumulate):
            steps.append(iteration)
            last = iteration
    assert steps == np.load(parity_dir / "optim" / f"{name}.npz")["optimizer_stepped_at"].tolist()
    assert len(steps) == cases[name]["optimizer_steps"]


@pytest.mark.parametrize("name", CASES)
def test_warmup_length(cases: dict[str, Any], name: str) -> None:
    assert schedule_of(cases[name]).warmup_iterations == cases[name]["warmup_iterations"]


@pytest.mark.parametrize("name", [name for name in CASES if not name.endswith("close-mosaic-over")])
def test_epochs_without_mosaic(cases: dict[str, Any], name: str) -> None:
    case = cases[name]
    first = mosaic_off_epoch(case["epochs"], case["close_mosaic"])
    epochs = [] if first is None else list(range(first, case["epochs"]))
    assert epochs == case["epochs_mosaic_off"]


def test_close_mosaic_longer_than_the_run_turns_mosaic_off_from_the_start(cases: dict[str, Any]) -> None:
    # Difference: the reference keeps mosaic on here, against what the flag says.
    case = cases["sgd-linear-b16-close-mosaic-over"]
    assert case["epochs_mosaic_off"] == []
    assert mosaic_off_epoch(case["epochs"], case["close_mosaic"]) == 0


@pytest.mark.parametrize(("shape", "name"), [("cosine", "one_cycle_20"), ("flat-cosine", "one_flat_cycle_20")])
def test_learning_rate_factors(facts: dict[str, Any], shape: Any, name: str) -> None:
    schedule = Schedule(epochs=20, batches_per_epoch=1, recipe=load_recipe("scratch-high"), shape=shape)
    factors = [schedule.factor(epoch) for epoch in range(21)]
    np.testing.assert_allclose(factors, facts["lr_factor"][name], rtol=0, atol=TOLERANCE)


def test_recipe_values(facts: dict[str, Any]) -> None:
    recipe = load_recipe("scratch-high").as_dict()
    without_effect = {"box", "cls", "obj", "obj_pw", "dfl", "iou_t", "anchor_t"}
    assert recipe == {k: v for k, v in facts["hyp_scratch_high"].items() if k not in without_effect}


@pytest.mark.parametrize("batch", [4, 8, 16, 24, 32, 48, 64, 96, 128])
def test_accumulation_and_weight_decay_by_batch(facts: dict[str, Any], batch: int) -> None:
    expected = facts["by_batch_size"][str(batch)]
    accumulate = rounded_accumulation(facts["nominal_batch"] / batch)
    assert accumulate == expected["accumulate_after_warmup"]
    assert scaled_weight_decay(0.0005, batch * accumulate) == pytest.approx(expected["weight_decay"], abs=1e-12)


@pytest.mark.parametrize("name", ["yolov9-t", "yolov9-s", "yolov9-c", "gelan-s"])
def test_parameter_groups(facts: dict[str, Any], name: str) -> None:
    expected = facts["param_groups"][name]
    groups = group_parameters(build_model(name, nc=80))
    for number, group in enumerate(groups):
        names = [n for n, _ in group]
        row = expected["batch16"][number]
        assert len(group) == row["tensors"]
        assert sum(p.numel() for _, p in group) == row["elements"]
        assert sum(p.requires_grad for _, p in group) == row["trainable_tensors"]
        assert names[:3] == expected["first_three_names_of_each_group"][number]
        assert zlib.crc32("\n".join(names).encode()) == expected["names_crc32_of_newline_joined_group"][number]


@pytest.mark.parametrize("batch", [16, 64])
@pytest.mark.parametrize("name", ["yolov9-t", "gelan-s"])
def test_group_options_of_a_model(facts: dict[str, Any], name: str, batch: int) -> None:
    decay = scaled_weight_decay(0.0005, batch * rounded_accumulation(64 / batch))
    groups = group_parameters(build_model(name, nc=80))
    optimizer = build_optimizer(groups, "SGD", lr=0.01, momentum=0.937, weight_decay=decay)
    for group, row in zip(optimizer.param_groups, facts["param_groups"][name][f"batch{batch}"], strict=True):
        for option in ("lr", "momentum", "nesterov", "weight_decay", "dampening"):
            assert group[option] == row[option]


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "LION"])
def test_group_options_by_optimizer(facts: dict[str, Any], kind: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    optimizer = build_optimizer(group_parameters(model), kind, lr=0.001, momentum=0.937, weight_decay=0.0005)
    for group, row in zip(optimizer.param_groups, facts["group_options_by_optimizer"][kind], strict=True):
        options = {k: list(v) if isinstance(v, tuple) else v for k, v in group.items() if k != "params"}
        # Older torch releases do not have every option; those that exist must agree.
        assert {k: v for k, v in row.items() if k in options} == {k: v for k, v in options.items() if k in row}
        assert {"lr", "weight_decay"} <= set(options)


def test_ema_decay_by_update(facts: dict[str, Any]) -> None:
    for updates, decay in facts["ema_decay"].items():
        assert ema_decay(int(updates)) == pytest.approx(decay, abs=TOLERANCE)


def test_one_ema_update(facts: dict[str, Any]) -> None:
    expected = facts["ema_one_update"]
    model = nn.BatchNorm1d(2)
    nn.init.ones_(model.weight)
    model.running_mean.zero_()
    ema = ModelEma(model)
    with torch.no_grad():
        model.weight.fill_(2.0)
        model.running_mean.fill_(2.0)
        model.num_batches_tracked.fill_(5)
    ema.update()
    np.testing.assert_allclose(ema.model.weight.numpy(), expected["weight_from_1_to_2"], atol=TOLERANCE)
    np.testing.assert_allclose(ema.model.running_mean.numpy(), expected["running_mean_from_0_to_2"], atol=TOLERANCE)
    assert int(ema.model.num_batches_tracked) == expected["num_batches_tracked_from_0_to_5"]
    assert ema.updates == expected["updates"]


def test_fitness_weights(facts: dict[str, Any]) -> None:
    weights = facts["fitness_weights_P_R_map50_map"]
    assert weights[:2] == [0, 0]
    assert fitness(1.0, 0.0) == pytest.approx(weights[2])
    assert fitness(0.0, 1.0) == pytest.approx(weights[3])


def test_early_stopping(facts: dict[str, Any]) -> None:
    stopper = EarlyStop(patience=3)
    for epoch, score, stop, may_stop, best_epoch in facts[
        "early_stopping_patience3_rows_epoch_fitness_stop_possible_best"
    ]:
        stopper.record(epoch, score)
        less_patient = replace(stopper, patience=stopper.patience - 1)
        assert (stopper.should_stop(epoch), less_patient.should_stop(epoch)) == (stop, may_stop)
        assert stopper.best_epoch == best_epoch


def test_gradient_clip(facts: dict[str, Any]) -> None:
    assert facts["gradient_clip_max_norm"] == CLIP_NORM
