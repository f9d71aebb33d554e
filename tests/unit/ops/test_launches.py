"""Launches of kernels are caught on tensors without content, and say what a compilation wants to know."""

import pytest
import torch

from yolov9.ops.average_pool import average_pool_2x2
from yolov9.ops.plain import kernels_on_meta, kernels_take, plain_operations, triton_is_installed

pytestmark = pytest.mark.skipif(
    not triton_is_installed(), reason="Triton is not installed; PyTorch's CUDA builds bring it"
)
META = torch.device("meta")
HOPPER = (9, 0)


def pictures(count: int, side: int, channels: int = 32) -> torch.Tensor:
    return torch.empty(count, side, side, channels, dtype=torch.bfloat16, device=META).permute(0, 3, 1, 2)


def test_kernels_take_tensors_without_content_only_where_launches_are_caught() -> None:
    assert not kernels_take(pictures(1, 8))
    with kernels_on_meta(HOPPER):
        assert kernels_take(pictures(1, 8))
        assert not kernels_take(torch.zeros(1))
        with plain_operations():
            assert not kernels_take(pictures(1, 8))
    assert not kernels_take(pictures(1, 8))


def test_launches_that_one_compiled_kernel_does_are_caught_once() -> None:
    from yolov9.ops.launches import caught_launches

    with caught_launches(HOPPER) as launches:
        for count, side in ((2, 16), (4, 16), (2, 32)):
            assert average_pool_2x2(pictures(count, side)).shape == (count, 32, side - 1, side - 1)
        assert len(launches) == 1
        average_pool_2x2(pictures(2, 9))
    assert len(launches) == 2, "9 is no multiple of 16"


def test_a_tensor_that_begins_at_an_odd_place_is_of_another_kind() -> None:
    from yolov9.ops.launches import Launch

    kernel = type("Kernel", (), {"__name__": "kernel"})()
    memory = torch.empty(64, dtype=torch.bfloat16, device=META)
    kinds = [Launch.of(kernel, (memory[start:],), {}).kind for start in (0, 8, 1)]
    assert kinds[0] == kinds[1] != kinds[2]


def test_kernels_are_launched_as_before_when_nobody_catches_them_any_more() -> None:
    from triton.runtime.jit import JITFunction

    from yolov9.ops.launches import caught_launches

    before = JITFunction.run, torch.autocast
    with pytest.raises(KeyError), caught_launches(HOPPER):
        raise KeyError
    assert (JITFunction.run, torch.autocast) == before
