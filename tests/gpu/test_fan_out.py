"""Activations with several consumers: the kernels that read their gradients add these, and each is made again once."""

import copy
import os

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from yolov9.model import build_model
from yolov9.model import norm_act as model_norm_act
from yolov9.model.elan import RepNCSPELAN4
from yolov9.ops.fan_out import fan_out
from yolov9.ops.join import Join
from yolov9.ops.norm_act import norm_act_plain
from yolov9.ops.recompute import recompute_activations

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.gpu(interpreter=True)
DEVICE, DTYPE = ("cpu", torch.float32) if INTERPRETED else ("cuda", torch.bfloat16)
# A card rounds each result to 8 bits of fraction, 2^-9 relative, and a block of a dozen layers adds such errors up.
UNIT_ERROR, BLOCK_ERROR = (2e-6, 1e-5) if INTERPRETED else (4e-3, 1e-1)
SHAPE = (2, 32, 11, 9)
BOTTLENECKS = 2


def _random(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.to(DEVICE, DTYPE).contiguous(memory_format=torch.channels_last)


def _uses(x: torch.Tensor, count: int) -> list[torch.Tensor]:
    """Fans out once after the other, as nested blocks do."""
    uses = [x]
    while len(uses) < count:
        uses[:1] = fan_out(uses[0])
    return uses


def _results(parts: list[torch.Tensor], *, joined: torch.Tensor | None, dense_from: int) -> list[torch.Tensor]:
    """Gradients of a unit whose dense result gets these gradients back, and those of its parameters."""
    from yolov9.ops.norm_act_fused import norm_act_fused

    torch.manual_seed(0)
    leaf = _random(SHAPE, 1).requires_grad_()
    residual = _random(SHAPE, 2).requires_grad_() if dense_from == 0 else None
    norm = nn.BatchNorm2d(SHAPE[1]).to(DEVICE)
    norm.weight.data.uniform_(0.5, 1.5)
    join = Join(SHAPE[1]) if joined is not None else None
    z = norm_act_fused([leaf], [norm], residual, join, dense_from)
    outputs, gradients = _uses(z, len(parts)), list(parts)
    if join is not None:
        outputs, gradients = [*outputs, join.result()], [*gradients, joined]
    torch.autograd.backward(outputs, gradients)
    return [t.grad for t in (leaf, norm.weight, norm.bias, residual) if t is not None]


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize(("with_join", "dense_from"), [(False, 0), (True, 0), (True, 16)])
def test_parts_of_a_gradient_give_the_same_as_their_sum(count: int, with_join: bool, dense_from: int) -> None:
    shape = (SHAPE[0], SHAPE[1] - dense_from, *SHAPE[2:])
    joined = _random(SHAPE, 3) if with_join else None
    parts = [_random(shape, 10 + number) for number in range(count)]
    # The last one lies in wider rows, as the gradient of a slice of a concatenation does.
    parts[-1] = torch.cat((parts[-1], parts[-1]), 1)[:, : shape[1]]
    total = torch.stack(parts).float().sum(0).to(DTYPE)
    found = _results(parts, joined=joined, dense_from=dense_from)
    expected = _results([total], joined=joined, dense_from=dense_from)
    for a, b in zip(found, expected, strict=True):
        assert float((a - b).norm() / b.norm()) < UNIT_ERROR


def test_what_no_fused_kernel_made_is_handed_on_as_it_is() -> None:
    x = _random(SHAPE, 1).requires_grad_()
    for tensor in (x, x * 2, x.detach()):
        assert all(use is tensor for use in fan_out(tensor))


class _Additions(TorchDispatchMode):
    """Counts additions of activations, which autograd makes where a gradient has several parts."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # signature of torch
        named = func in (torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor)
        self.count += named and all(isinstance(arg, torch.Tensor) and arg.dim() == 4 for arg in args[:2])
        return func(*args, **(kwargs or {}))


def _block_gradients(
    block: RepNCSPELAN4,
    x: torch.Tensor,
    monkeypatch: pytest.MonkeyPatch,
    *,
    fused: bool,
    recompute: bool = False,
    exact: bool = False,
) -> tuple[list[torch.Tensor], int]:
    """Gradients of a block's input and parameters, and how many additions autograd made; `exact`: in float64."""
    from yolov9.ops.norm_act_fused import norm_act_fused

    monkeypatch.setattr(model_norm_act, "norm_act", norm_act_fused if fused else norm_act_plain)
    block = copy.deepcopy(block).to(torch.float64 if exact else None)
    x = x.double() if exact else x
    leaf = x.detach().clone(memory_format=torch.channels_last).requires_grad_()
    context = recompute_activations(least_bytes=0) if recompute else torch.enable_grad()
    with torch.autocast(DEVICE, dtype=DTYPE, enabled=not INTERPRETED and not exact), context:
        out = block(leaf)
    gradient = _random(tuple(out.shape), 4).to(out.dtype)
    with _Additions() as additions:
        out.backward(gradient)
    return [leaf.grad, *(p.grad for p in block.parameters())], additions.count


def _worst_error(found: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    return max(float((a - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True))


def test_a_block_has_the_gradients_of_its_plain_twin_and_autograd_adds_none(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    block = RepNCSPELAN4(16, 16, 32, 16, BOTTLENECKS).to(DEVICE, memory_format=torch.channels_last).train()
    x = _random((2, 16, 10, 8), 5)
    found, additions = _block_gradients(block, x, monkeypatch, fused=True)
    expected, plain_additions = _block_gradients(block, x, monkeypatch, fused=False)
    assert (additions, plain_additions > 4 * BOTTLENECKS) == (0, True)
    exact, _ = _block_gradients(block, x, monkeypatch, fused=False, exact=True)
    assert _worst_error(found, exact) < 3 * _worst_error(expected, exact)
    again, _ = _block_gradients(block, x, monkeypatch, fused=True, recompute=True)
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))


GRAPH = {
    "nc": 3,
    "layers": [
        *([-1, 1, "Conv", [16, 3, 2]] for _ in range(5)),
        [-1, 1, "Upsample", [None, 2, "nearest"]],
        [[-1, 3], 1, "Concat", [1]],
        [-1, 1, "Conv", [16, 1, 1]],
        [[2, 7, 4], 1, "DDetect", [3]],
    ],
}
"""Rows 2 and 3 are read by the row after them and by another one, row 4 by two, and each branch of a level reads it."""


def test_features_that_several_rows_read_have_the_gradients_of_their_plain_twin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from yolov9.ops.norm_act_fused import norm_act_fused

    torch.manual_seed(0)
    base = build_model(GRAPH).to(DEVICE, memory_format=torch.channels_last).train()
    results, additions = [], []
    for norm_act in (norm_act_fused, norm_act_plain):
        monkeypatch.setattr(model_norm_act, "norm_act", norm_act)
        model = copy.deepcopy(base)
        with torch.autocast(DEVICE, dtype=DTYPE, enabled=not INTERPRETED):
            (levels,) = model.levels(_random((2, 3, 64, 64), 6))
        maps = [tensor for level in levels for tensor in level]
        with _Additions() as counted:
            torch.autograd.backward(maps, [torch.ones_like(tensor) for tensor in maps])
        additions.append(counted.count)
        results.append([p.grad for p in model.parameters() if p.grad is not None])
    assert (additions[0], additions[1] >= 6) == (0, True)
    errors = [float((a - b).norm() / b.norm()) for a, b in zip(*results, strict=True) if float(b.norm()) > 1e-3]
    assert max(errors) < 10 * BLOCK_ERROR


def test_a_block_makes_each_activation_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Residuals are asked for by two convolutions, by the next residual and by the concatenation."""
    from yolov9.ops import norm_act_fused

    block = RepNCSPELAN4(16, 16, 32, 16, BOTTLENECKS).to(DEVICE, memory_format=torch.channels_last).train()
    results, activate = [], norm_act_fused._activate

    def counted(branches, residual, joined, dense_from):  # as the function it stands for
        results.extend(kind for kind, made in (("slice", joined), ("tensor", dense_from)) if made is not None)
        return activate(branches, residual, joined, dense_from)

    monkeypatch.setattr(norm_act_fused, "_activate", counted)
    _block_gradients(block, _random((2, 16, 10, 8), 5), monkeypatch, fused=True)
    forward = sorted(results)
    results.clear()
    _block_gradients(block, _random((2, 16, 10, 8), 5), monkeypatch, fused=True, recompute=True)
    assert len(forward) > 8 * BOTTLENECKS
    # No layer follows that needs the block's own result.
    assert sorted([*results, "tensor"]) == sorted(2 * forward)
