"""Weight gradients that are added up at the end of a pass."""

import pytest
import torch
from torch import Tensor, nn

from yolov9.engine.flat import FlatParameters
from yolov9.ops.half_gradients import COPIED_TOGETHER, HalfGradients, add_at_once


def _weights(count: int) -> tuple[FlatParameters, list[nn.Parameter]]:
    """Weights of several shapes and memory orders in flat memory, whose gradients are ones."""
    shapes = [(4, 3, 3, 3), (8, 4, 1, 1), (5, 2, 3, 3)]
    weights = [nn.Parameter(torch.zeros(shapes[i % 3])) for i in range(count)]
    for weight in weights[::2]:
        weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    flat = FlatParameters([[*weights, nn.Parameter(torch.zeros(7))]])
    flat.make_compute_copies(torch.bfloat16)
    flat.gradients.fill_(1)
    return flat, weights


def _gradients_of(weights: list[nn.Parameter], memory_format: torch.memory_format | None = None) -> list[Tensor]:
    torch.manual_seed(1)
    made = [torch.randn_like(weight).bfloat16() for weight in weights]
    return [gradient.contiguous(memory_format=memory_format) for gradient in made] if memory_format else made


@pytest.mark.parametrize("count", [3, COPIED_TOGETHER, 2 * COPIED_TOGETHER + 5])
@pytest.mark.parametrize("memory_format", [None, torch.contiguous_format, torch.channels_last])
def test_two_passes_add_what_adding_at_once_does(count: int, memory_format: torch.memory_format | None) -> None:
    flat, weights = _weights(count)
    twin, twin_weights = _weights(count)
    collected = HalfGradients()
    for _ in range(2):
        for gradient, weight, other in zip(_gradients_of(weights, memory_format), weights, twin_weights, strict=True):
            collected.put(gradient, weight)
            add_at_once(gradient, other)
        collected.add_up()
    assert torch.equal(flat.gradients, twin.gradients)


def test_a_weight_that_is_used_twice_gets_both_gradients() -> None:
    flat, weights = _weights(2)
    collected = HalfGradients()
    for _ in range(2):
        for gradient, weight in zip(_gradients_of(weights), weights, strict=True):
            collected.put(gradient, weight)
    collected.add_up()
    for gradient, weight in zip(_gradients_of(weights), weights, strict=True):
        torch.testing.assert_close(weight.grad, 1 + 2 * gradient.float())
    assert flat.gradients[-1] == 1


def test_nothing_of_a_pass_that_failed_is_added() -> None:
    flat, weights = _weights(COPIED_TOGETHER + 3)
    collected = HalfGradients()
    for gradient, weight in zip(_gradients_of(weights), weights, strict=True):
        collected.put(gradient, weight)
    collected.drop()
    collected.put(_gradients_of(weights[:1])[0], weights[0])
    collected.add_up()
    assert bool((flat.gradients[weights[0].numel() :] == 1).all())


def test_weights_outside_of_flat_memory_are_added_to_at_once() -> None:
    weight = nn.Parameter(torch.zeros(2, 3, 1, 1))
    weight.grad = torch.ones_like(weight)
    HalfGradients().put(torch.ones(2, 3, 1, 1, dtype=torch.bfloat16), weight)
    assert bool((weight.grad == 2).all())


def test_a_pass_without_some_weights_leaves_their_gradients_as_they_are() -> None:
    _, weights = _weights(2)
    collected = HalfGradients()
    for some in (weights, weights[:1]):
        for gradient, weight in zip(_gradients_of(some), some, strict=True):
            collected.put(gradient, weight)
        collected.add_up()
    torch.testing.assert_close(weights[1].grad, 1 + _gradients_of(weights)[1].float())
