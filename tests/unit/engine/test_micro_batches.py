"""Batches in parts, and batches that run out of memory: the gradient stays that of the whole batch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from yolov9.engine.ema import ModelEma
from yolov9.engine.flat import FlatParameters
from yolov9.engine.micro_batches import MemoryEvent
from yolov9.engine.optimizer import build_optimizer, group_parameters
from yolov9.engine.out_of_memory import is_out_of_memory
from yolov9.engine.precision import Precision
from yolov9.engine.step import TrainStep
from yolov9.errors import ExitCode, UserError
from yolov9.loss import DetectionLoss, LossSettings, pack_targets
from yolov9.model import build_model

CPU = torch.device("cpu")
GRAPH = Path(__file__).parent / "tiny-graph.yaml"
PICTURES = 64
WORDS = "CUDA out of memory. Tried to allocate 20.00 MiB"
Fault = Callable[[int], BaseException | None]


class FailingLoss(DetectionLoss):
    """The real loss; its n-th call fails as the fault says, after the forward pass has changed the statistics."""

    calls = 0
    fault: Fault = staticmethod(lambda call: None)

    def _heads(self, raw):
        self.calls += 1
        error = self.fault(self.calls)
        if error is not None:
            raise error
        return super()._heads(raw)


def fails_at(*calls: int, words: str = WORDS) -> Fault:
    return lambda call: torch.OutOfMemoryError(words) if call in calls else None


def make_step(
    *,
    micro_batch: int | None = None,
    fault: Fault = lambda call: None,
    dual: bool = False,
    optimizer: str = "SGD",
) -> TrainStep:
    torch.manual_seed(0)
    model = build_model("yolov9-t" if dual else str(GRAPH), nc=3).train()
    groups = group_parameters(model)
    flat = FlatParameters([[p for _, p in group if p.requires_grad] for group in groups])
    update = build_optimizer(groups, optimizer, lr=0.01, momentum=0.9, weight_decay=0.0, fused=True)
    loss = FailingLoss(model, LossSettings())
    loss.fault = fault
    precision = Precision(CPU, torch.float32)
    return TrainStep(model, loss, update, ModelEma(model), precision, flat, micro_batch=micro_batch)


def freeze_statistics(step: TrainStep) -> None:
    for module in step.model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()


def batch(pictures: int = PICTURES, side: int = 64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    images = torch.rand(pictures, 3, side, side, generator=generator)
    picture = torch.randint(0, pictures, (2 * pictures, 1), generator=generator)
    label = torch.randint(0, 3, (2 * pictures, 1), generator=generator)
    boxes = torch.rand(2 * pictures, 4, generator=generator) * 0.4 + 0.2
    return images, pack_targets(torch.cat((picture, label, boxes), 1), pictures)


def gradient_of(step: TrainStep, images: Tensor, targets: Tensor) -> tuple[Tensor, float, tuple[float, float, float]]:
    total = float(step.add_gradient(images, targets))
    return step.flat.gradients.clone(), total, step.meter.means()


def assert_same(one: Sequence[object], other: Sequence[object]) -> None:
    (gradient, total, items), (expected, expected_total, expected_items) = one, other
    assert isinstance(gradient, Tensor)
    assert isinstance(expected, Tensor)
    assert float((gradient - expected).norm() / expected.norm()) < 1e-5
    assert total == pytest.approx(expected_total, rel=1e-5)
    assert items == pytest.approx(expected_items, rel=1e-5)


@pytest.mark.parametrize("dual", [False, True])
def test_eight_times_eight_pictures_have_the_gradient_of_sixty_four(dual: bool) -> None:
    images, targets = batch(side=64 if not dual else 32)
    results = []
    for micro_batch in (None, 8):
        step = make_step(micro_batch=micro_batch, dual=dual)
        freeze_statistics(step)
        results.append(gradient_of(step, images, targets))
    assert_same(results[1], results[0])


def test_a_remainder_has_its_weight() -> None:
    images, targets = batch(23)
    results = []
    for micro_batch in (None, 8):
        step = make_step(micro_batch=micro_batch)
        freeze_statistics(step)
        results.append(gradient_of(step, images, targets))
    assert_same(results[1], results[0])


@pytest.mark.parametrize("calls", [(1,), (1, 3), (1, 4, 12)])
def test_a_batch_that_runs_out_of_memory_is_done_again_with_the_same_gradient(calls: tuple[int, ...]) -> None:
    images, targets = batch()
    straight, disturbed = make_step(), make_step(fault=fails_at(*calls))
    events: list[MemoryEvent] = []
    disturbed.micro_batches.on_change = events.append
    for step in (straight, disturbed):
        freeze_statistics(step)
    assert_same(gradient_of(disturbed, images, targets), gradient_of(straight, images, targets))
    assert [event.after for event in events] == [32, 16, 8][: len(calls)]


def test_gradients_of_earlier_batches_survive_a_failed_one() -> None:
    images, targets = batch(16)
    straight, disturbed = make_step(), make_step(fault=fails_at(2))
    results = []
    for step in (straight, disturbed):
        freeze_statistics(step)
        step.update()
        step.add_gradient(images, targets)
        results.append(gradient_of(step, images.flip(0), targets))
    assert_same(results[1], results[0])


def test_statistics_and_losses_of_a_failed_attempt_are_put_back() -> None:
    images, targets = batch(8)
    planned, disturbed = make_step(micro_batch=4), make_step(fault=fails_at(1))
    results = [gradient_of(step, images, targets) for step in (planned, disturbed)]
    assert_same(results[1], results[0])
    for one, other in zip(planned.model.buffers(), disturbed.model.buffers(), strict=True):
        assert torch.equal(one, other)


def test_the_first_pass_over_parts_leaves_the_running_statistics_alone() -> None:
    images, targets = batch(8)
    step = make_step(micro_batch=4)
    expected = make_step()
    step.add_gradient(images, targets)
    with torch.no_grad():
        for part in torch.split(images, 4):
            expected.model(part)
    for (name, one), other in zip(step.model.named_buffers(), expected.model.buffers(), strict=True):
        if "num_batches" not in name:
            torch.testing.assert_close(one, other, msg=name)


def test_one_picture_that_does_not_fit_is_a_user_error() -> None:
    images, targets = batch(4)
    step = make_step(fault=lambda call: torch.OutOfMemoryError(WORDS))
    with pytest.raises(UserError, match=r"one picture does not fit.*20\.00 MiB") as caught:
        step.add_gradient(images, targets)
    assert caught.value.exit_code == ExitCode.NO_GPU
    assert "--img" in caught.value.remedy


def test_other_errors_are_shown_as_themselves() -> None:
    images, targets = batch(4)
    step = make_step(fault=lambda call: RuntimeError("size mismatch"))
    with pytest.raises(RuntimeError, match="size mismatch"):
        step.add_gradient(images, targets)


class FullOnce(TorchDispatchMode):
    """The n-th operation that takes memory for its result fails."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.left = number

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "Tensor" in str(func._schema).rpartition("->")[2] and "!" not in str(func._schema):
            self.left -= 1
            if self.left == 0:
                raise torch.OutOfMemoryError(WORDS)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", ["SGD", "AdamW", "LION"])
def test_an_update_may_run_out_of_memory_at_any_operation(kind: str) -> None:
    images, targets = torch.rand(2, 3, 64, 64), torch.tensor([[0, 1, 0.5, 0.5, 0.4, 0.4]])
    ends, number, came = [], 0, True
    while came:
        step = make_step(optimizer=kind)
        step.add_gradient(images, targets)
        with FullOnce(number) as memory:
            step.update()
        came, number = memory.left <= 0, number + 1
        ends.append((step.flat.values.clone(), step.faults()))
    assert len(ends) > 10
    assert all(torch.equal(values, ends[0][0]) and faults == ends[0][1] for values, faults in ends)


def test_pictures_too_small_for_batch_normalisation_are_a_user_error() -> None:
    step = make_step()
    with pytest.raises(UserError, match="single cell"):
        step.add_gradient(torch.rand(1, 3, 16, 16), torch.tensor([[0, 1, 0.5, 0.5, 0.4, 0.4]]))


def test_an_update_that_runs_out_of_memory_is_done_again() -> None:
    images, targets = batch(8)
    straight, disturbed = make_step(), make_step()
    work, failures = disturbed.flat.clip_gradients, [torch.OutOfMemoryError(WORDS)]

    def clip(largest: float) -> Tensor:
        if failures:
            raise failures.pop()
        return work(largest)

    disturbed.flat.clip_gradients = clip  # type: ignore[method-assign]
    for step in (straight, disturbed):
        step.add_gradient(images, targets)
        step.update()
    assert torch.equal(straight.flat.values, disturbed.flat.values)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError(WORDS), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"), False),
        (RuntimeError("size mismatch"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_counts_as_out_of_memory(error: BaseException, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
