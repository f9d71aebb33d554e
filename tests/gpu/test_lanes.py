"""A step on several streams gives the gradient of a step on one."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from yolov9.engine import batch_gradient, bench_step
from yolov9.engine.captured import side_stream
from yolov9.ops.recompute import recompute_activations

pytestmark = pytest.mark.gpu


def _gradients(
    monkeypatch: pytest.MonkeyPatch, *, lanes: bool, calls: int, recompute: bool = False
) -> list[torch.Tensor]:
    monkeypatch.setattr(batch_gradient, "recompute_activations", lambda: recompute_activations(least_bytes=0))
    if not lanes:
        monkeypatch.setattr(batch_gradient, "use_lanes", lambda _: nullcontext())
    device = torch.device("cuda", 0)
    case = bench_step.Case("yolov9-t", batch=4, plain=False, imgsz=320, recompute=recompute)
    seen = []
    with side_stream(device):
        step = bench_step.make_step(case, device, search=False)
        images, targets = bench_step.make_batch(case, device)
        for _ in range(calls):
            step.add_gradient(images, targets)
            seen.append(step.flat.gradients.clone())
            step.flat.zero_gradients()
    monkeypatch.undo()
    return seen


def test_streams_change_no_bit_of_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call runs as it is, the second captures and replays, the third replays."""
    one = _gradients(monkeypatch, lanes=False, calls=1)
    several = _gradients(monkeypatch, lanes=True, calls=3)
    assert [torch.equal(one[0], gradient) for gradient in several] == [True] * 3


def test_activations_made_again_on_several_streams_change_no_bit_of_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Main and auxiliary part read the same features and make them again on their own streams."""
    kept = _gradients(monkeypatch, lanes=False, calls=1)
    again = _gradients(monkeypatch, lanes=True, calls=3, recompute=True)
    assert [torch.equal(kept[0], gradient) for gradient in again] == [True] * 3


def test_batches_that_fork_less_than_those_before_them_are_captured_too() -> None:
    """Large inputs have no lane for the narrow convolutions, and the pass that adds up scores has no backward pass."""
    device = torch.device("cuda", 0)
    case = bench_step.Case("yolov9-t", batch=4, plain=False, imgsz=320, recompute=False)
    with side_stream(device):
        step = bench_step.make_step(case, device, search=False)
        for imgsz, size in ((320, 4), (1280, 4), (1280, 2)):
            images, targets = bench_step.make_batch(replace(case, imgsz=imgsz), device)
            for _ in range(2):
                step.gradient.add(images, targets, size)
            assert step.gradient.replays(images, targets, size), (imgsz, size)
