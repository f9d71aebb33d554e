"""Parameter groups, LION, and optimizer state by name."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from yolov9.engine.ema import ModelEma
from yolov9.engine.flat import FlatParameters
from yolov9.engine.lion import Lion
from yolov9.engine.optimizer import (
    build_optimizer,
    group_parameters,
    load_optimizer_state,
    optimizer_state,
    prepare_state,
    set_step_values,
)
from yolov9.engine.schedule import StepValues
from yolov9.errors import UserError

KINDS = ["SGD", "Adam", "AdamW", "LION"]


def small_model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.Conv2d(4, 2, 1))


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        model(torch.randn(2, 3, 8, 8, generator=generator)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_every_parameter_is_in_one_group() -> None:
    model = small_model()
    names = [name for group in group_parameters(model) for name, _ in group]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())
    assert [[name for name, _ in group] for group in group_parameters(model)] == [
        ["0.bias", "1.bias", "3.bias"],
        ["0.weight", "3.weight"],
        ["1.weight"],
    ]


def test_lion_moves_by_the_sign_and_decays_apart_from_the_gradient() -> None:
    weight = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
    optimizer = Lion([weight], lr=0.1, betas=(0.9, 0.99), weight_decay=0.5)
    weight.grad = torch.tensor([3.0, -0.001, 0.0])
    optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.tensor([1.0 * 0.95 - 0.1, -2.0 * 0.95 + 0.1, 0.5 * 0.95]))
    torch.testing.assert_close(optimizer.state[weight]["exp_avg"], torch.tensor([0.03, -0.00001, 0.0]))
    # The second update looks at nine parts of momentum and one of gradient: 0.9 * 0.03 - 0.1 * 0.2 > 0.
    weight.grad = torch.tensor([-0.2, 0.0, 0.0])
    before = weight.detach().clone()
    optimizer.step()
    assert weight[0] < before[0] * 0.95


def test_unknown_optimizer_is_a_user_error() -> None:
    with pytest.raises(UserError, match="RMSProp"):
        build_optimizer(group_parameters(small_model()), "RMSProp", lr=0.1, momentum=0.9, weight_decay=0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_optimizer_goes_on_exactly(kind: str) -> None:
    straight, broken = small_model(), small_model()
    options = {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}
    steps(straight, build_optimizer(group_parameters(straight), kind, **options), 1)
    first = build_optimizer(group_parameters(broken), kind, **options)
    steps(broken, first, 1)
    saved = {
        name: {key: value.clone() for key, value in state.items()}
        for name, state in optimizer_state(first, group_parameters(broken)).items()
    }
    second = build_optimizer(group_parameters(broken), kind, **options)
    assert load_optimizer_state(second, group_parameters(broken), saved) == []
    steps(broken, first, 2)
    expected = [p.detach().clone() for p in broken.parameters()]
    for parameter, original in zip(broken.parameters(), straight.parameters(), strict=True):
        parameter.data.copy_(original.data)
    broken[1].load_state_dict(straight[1].state_dict())
    steps(broken, second, 2)
    assert all(torch.equal(a, b) for a, b in zip(expected, broken.parameters(), strict=True))


def test_state_that_does_not_fit_is_named() -> None:
    model = small_model()
    optimizer = build_optimizer(group_parameters(model), "SGD", lr=0.1, momentum=0.9, weight_decay=0.0)
    saved = {"0.weight": {"momentum_buffer": torch.zeros(9)}}
    assert "0.weight" in load_optimizer_state(optimizer, group_parameters(model), saved)


def test_adam_keeps_its_first_beta_while_momentum_warms_up() -> None:
    optimizer = build_optimizer(group_parameters(small_model()), "Adam", lr=0.1, momentum=0.937, weight_decay=0.0)
    set_step_values(optimizer, StepValues(lr_bias=0.3, lr_weight=0.2, lr_norm=0.1, momentum=0.8, accumulate=1))
    assert [group["lr"] for group in optimizer.param_groups] == [0.3, 0.2, 0.1]
    assert all(group["betas"][0] == 0.937 and "momentum" not in group for group in optimizer.param_groups)


def test_the_average_follows_weights_and_statistics_and_leaves_counters() -> None:
    model = small_model()
    ema = ModelEma(model)
    ema.updates = 100_000
    with torch.no_grad():
        for value in model.state_dict().values():
            value.add_(10 if value.is_floating_point() else 7)
    before = {name: value.clone() for name, value in ema.model.state_dict().items()}
    ema.update()
    for name, value in ema.model.state_dict().items():
        moved = (value - before[name]).float()
        expected = torch.full_like(moved, 0.001) if value.is_floating_point() else torch.zeros_like(moved)
        torch.testing.assert_close(moved, expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize(("kind", "vectors"), [("SGD", 1), ("Adam", 2), ("AdamW", 3), ("LION", 1)])
def test_states_of_one_kind_lie_in_one_vector_also_after_a_resume(kind: str, vectors: int) -> None:
    model = small_model()
    groups = group_parameters(model)
    flat = FlatParameters([[parameter for _, parameter in group] for group in groups])
    optimizer = build_optimizer(groups, kind, lr=0.1, momentum=0.9, weight_decay=0.01)
    prepare_state(optimizer, flat)

    def places() -> set[int]:
        states = [value for state in optimizer.state.values() for value in state.values() if value.dim()]
        assert len(states) == vectors * len(list(model.parameters()))
        return {value.untyped_storage().data_ptr() for value in states}

    before = places()
    assert len(before) == vectors
    saved = {
        name: {key: value + 1 for key, value in state.items()}
        for name, state in optimizer_state(optimizer, groups).items()
    }
    assert load_optimizer_state(optimizer, groups, saved) == []
    assert places() == before
    found = optimizer_state(optimizer, groups)
    assert all(torch.equal(found[name][key], value) for name, state in saved.items() for key, value in state.items())


UPDATE_WITH = """
import sys
from torch import nn, ones
from yolov9.engine.optimizer import build_optimizer, group_parameters
model = nn.Conv2d(3, 4, 3)
groups = group_parameters(model)
optimizer = build_optimizer(groups, sys.argv[1], lr=0.01, momentum=0.9, weight_decay=0.1)
model(ones(1, 3, 4, 4)).sum().backward()
optimizer.step()
optimizer.load_state_dict(optimizer.state_dict())
optimizer.zero_grad()
sys.exit("torch._dynamo" in sys.modules)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_does_not_load_the_compiler(kind: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", UPDATE_WITH, kind], env=environment, check=False)
    assert done.returncode == 0
