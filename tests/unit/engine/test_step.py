"""The step itself: sums, faults, and batches on their way to the device."""

from typing import Any

import pytest
import torch
from torch import nn

from yolov9.engine.device_batch import MultiScale, to_unit_range
from yolov9.engine.early_stop import EarlyStop
from yolov9.engine.ema import ModelEma
from yolov9.engine.flat import FlatParameters
from yolov9.engine.loss_meter import LossMeter
from yolov9.engine.optimizer import build_optimizer, group_parameters
from yolov9.engine.precision import Precision, choose_precision, resolve_device
from yolov9.engine.step import TrainStep
from yolov9.errors import ExitCode, UserError

CPU = torch.device("cpu")


def test_the_meter_takes_means_and_leaves_out_what_is_not_finite() -> None:
    meter = LossMeter(CPU)
    meter.add(torch.tensor([1.0, 2.0, 3.0]))
    meter.add(torch.tensor([3.0, 2.0, 1.0]))
    meter.add(torch.tensor([float("nan"), 2.0, 1.0]))
    assert meter.means() == (2.0, 2.0, 2.0)


def test_a_restored_meter_goes_on() -> None:
    first, second = LossMeter(CPU), LossMeter(CPU)
    first.add(torch.tensor([1.0, 2.0, 3.0]))
    second.load(first.state())
    for meter in (first, second):
        meter.add(torch.tensor([0.1, 0.2, 0.3]))
    assert first.means() == second.means()


def test_pictures_become_channels_last_floats_without_moving() -> None:
    raw = torch.arange(2 * 4 * 6 * 3, dtype=torch.uint8).view(2, 4, 6, 3)
    images = to_unit_range(raw, torch.float32)
    assert images.shape == (2, 3, 4, 6)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(images[1, 2], raw[1, :, :, 2].float() / 255)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_dividing_in_half_precision_rounds_once(dtype: torch.dtype) -> None:
    levels = torch.arange(256, dtype=torch.uint8).view(1, 16, 16, 1).expand(1, 16, 16, 3)
    expected = (levels.permute(0, 3, 1, 2).float() / 255).to(dtype)
    assert torch.equal(to_unit_range(levels, dtype), expected)


def test_multi_scale_sizes_depend_on_seed_and_iteration_only() -> None:
    sizes = [MultiScale(640, seed=1).size(iteration) for iteration in range(300)]
    assert sizes == [MultiScale(640, seed=1).size(iteration) for iteration in range(300)]
    assert sizes != [MultiScale(640, seed=2).size(iteration) for iteration in range(300)]
    assert min(sizes) == 320
    assert max(sizes) == 960
    assert all(size % 32 == 0 for size in sizes)


def test_multi_scale_keeps_the_shape_of_rectangles() -> None:
    scale = MultiScale(64, seed=0)
    resized = scale.apply(torch.zeros(1, 3, 64, 32), 5)
    assert max(resized.shape) == scale.size(5)
    assert resized.shape[2] >= resized.shape[3]


def test_a_gpu_that_is_not_there_is_a_user_error() -> None:
    with pytest.raises(UserError) as caught:
        resolve_device("99")
    assert caught.value.exit_code == ExitCode.NO_GPU


def test_the_cpu_calculates_in_float32_unless_asked() -> None:
    assert choose_precision("auto", CPU).dtype == torch.float32
    assert choose_precision("fp16", CPU).dtype == torch.float32
    assert choose_precision("bf16", CPU).dtype == torch.bfloat16


def test_patience_zero_never_stops() -> None:
    stopper = EarlyStop(patience=0)
    stopper.record(0, 0.5)
    assert not stopper.should_stop(1000)


def test_a_score_that_is_no_number_is_not_the_best() -> None:
    stopper = EarlyStop(patience=3, best_score=0.1)
    assert not stopper.record(1, float("nan"))


class SumLoss:
    """The sum of what the network gives, times the targets."""

    def prepare(self, targets: torch.Tensor, pictures: int, picture_hw: tuple[int, int]) -> torch.Tensor:
        return targets

    def __call__(self, raw: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (raw * targets).sum(), torch.ones(3)


def _step(model: nn.Module) -> TrainStep:
    groups = group_parameters(model)
    flat = FlatParameters([[p for _, p in group] for group in groups])
    optimizer = build_optimizer(groups, "SGD", lr=0.1, momentum=0.9, weight_decay=0.1)
    loss: Any = SumLoss()
    return TrainStep(model, loss, optimizer, ModelEma(model), Precision(CPU, torch.float32), flat)


def test_cudnn_is_on_and_searches_for_the_first_shape_only() -> None:
    seen: list[tuple[bool, bool]] = []
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2))
    model.register_forward_hook(lambda *_: seen.append((torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark)))
    step = _step(model)
    for pictures in (2, 1, 2):
        step.add_gradient(torch.rand(pictures, 3, 4, 4), torch.tensor(1.0))
    assert seen == [(True, True), (True, False), (True, True)]


def test_parameters_with_a_gradient_that_is_not_finite_stay() -> None:
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2))
    step = _step(model)
    images = torch.rand(1, 3, 4, 4)
    step.add_gradient(images, torch.tensor(1.0))
    step.update()
    before = [p.detach().clone() for p in model.parameters()]
    step.add_gradient(images, torch.tensor(float("inf")))
    step.update()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert (step.faults().total, step.faults().in_a_row) == (1, 1)
    step.add_gradient(images, torch.tensor(1.0))
    step.update()
    assert not all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert (step.faults().total, step.faults().in_a_row) == (1, 0)
