"""LION, an optimizer by the sign of a momentum: Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms"."""

from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer


class Lion(Optimizer):
    """Algorithm 2 of the paper, over lists of tensors at once.

    Per parameter p with gradient g and momentum m: `p -= lr * (sign(b1 * m + (1 - b1) * g) + weight_decay * p)`, then
    `m = b2 * m + (1 - b2) * g`. Parameters without a gradient are left alone.

    Args:
        params: tensors or parameter groups.
        lr: learning rate; a third to a tenth of Adam's.
        betas: (b1, b2).
        weight_decay: decoupled decay.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Updates every parameter that has a gradient; returns the closure's value when one is given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        groups = [(group, [p for p in group["params"] if p.grad is not None]) for group in self.param_groups]
        # All memory is taken before anything changes, so that a step that runs out of it can be repeated.
        updates = [self._directions(params, group) if params else [] for group, params in groups]
        for (group, params), directions in zip(groups, updates, strict=True):
            if params:
                self._move(params, directions, group)
        return loss

    def _momentum(self, param: Tensor) -> Tensor:
        state = self.state[param]
        if not state:
            state["exp_avg"] = torch.zeros_like(param, memory_format=torch.preserve_format)
        momentum: Tensor = state["exp_avg"]
        return momentum

    def _directions(self, params: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        momenta = [self._momentum(p) for p in params]
        directions = torch._foreach_lerp(momenta, _gradients(params), 1 - group["betas"][0])
        torch._foreach_sign_(directions)
        return list(directions)

    def _move(self, params: list[Tensor], directions: list[Tensor], group: dict[str, Any]) -> None:
        lr, momenta = group["lr"], [self._momentum(p) for p in params]
        torch._foreach_mul_(params, 1 - lr * group["weight_decay"])
        torch._foreach_add_(params, directions, alpha=-lr)
        torch._foreach_lerp_(momenta, _gradients(params), 1 - group["betas"][1])


def _gradients(params: list[Tensor]) -> list[Tensor]:
    return [p.grad for p in params if p.grad is not None]
