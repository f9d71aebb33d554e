"""The loss of a table of targets never looks at a value: it runs on tensors that have none."""

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from yolov9.loss import pack_targets


class OneDeviceOnly(TorchDispatchMode):
    """Fails when an operation makes a tensor on the host, as a copy from or to the device does."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, torch.Tensor):
                assert value.device.type == "cuda", f"{function} made a tensor on {value.device}"
        return result


@pytest.fixture
def pretend(problem):
    """Makes maps and targets without values on a pretended device, and the mode in which they can be used."""
    shapes = [[level.shape for level in head] for head in problem.maps()]

    def make(device):
        mode = FakeTensorMode()
        with mode:
            maps = [[torch.empty(shape, device=device, requires_grad=True) for shape in head] for head in shapes]
            return mode, tuple(maps), torch.empty(problem.pictures, 16, 5, device=device)

    return make


SETTINGS = [{}, {"fl_gamma": 1.5, "cls_pw": 2.0, "topk": 13}]


@pytest.mark.parametrize("settings", SETTINGS)
def test_forward_makes_no_tensor_on_the_host(problem, pretend, settings):
    mode, maps, table = pretend("cuda")
    loss = problem.loss(**settings)  # reads the model's strides, once
    with mode, OneDeviceOnly():
        total, items = loss(maps, table)
    assert (total.shape, items.shape) == ((), (3,))


@pytest.mark.parametrize("settings", SETTINGS)
def test_forward_and_backward_run_without_values(problem, pretend, settings):
    mode, maps, table = pretend("cpu")  # autograd asks for a real GPU when tensors pretend to be on one
    loss = problem.loss(**settings)
    with mode:
        loss(maps, table)[0].backward()
    assert all(level.grad.shape == level.shape for head in maps for level in head)


def test_the_trap_snaps_when_a_value_is_looked_at(problem, pretend):
    mode, maps, _ = pretend("cuda")
    loss = problem.loss()
    with mode, pytest.raises((DataDependentOutputException, DynamicOutputShapeException)):
        loss(maps, torch.empty(7, 6, device="cuda"))  # rows have to be counted


def test_the_trap_snaps_when_a_tensor_is_copied_to_the_host(pretend):
    mode, maps, _ = pretend("cuda")
    with mode, OneDeviceOnly(), pytest.raises(AssertionError, match="made a tensor on cpu"):
        maps[0][0].cpu()


def test_recorded_step_answers_for_other_targets(problem):
    """A graph of operations, recorded once, gives the plain result for other values of the same shapes."""
    loss = problem.loss()
    maps = [level.detach() for head in problem.maps() for level in head]

    def step(maps, table):
        maps = [level.detach().requires_grad_() for level in maps]
        total, items = loss((maps[:3], maps[3:]), table)
        return total.detach(), items, *torch.autograd.grad(total, maps)

    first = pack_targets(problem.rows[:4], problem.pictures, bucket=(20,))
    recorded = make_fx(step)(maps, first)
    other = pack_targets(problem.rows, problem.pictures, bucket=(20,))
    torch.testing.assert_close(recorded(maps, other), step(maps, other), rtol=1e-6, atol=1e-7)
