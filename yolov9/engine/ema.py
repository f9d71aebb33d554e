"""Exponential moving average of a model: what is validated, saved as best.pt and used for detection."""

import copy
import math
from collections.abc import Container
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from yolov9.engine.flat import FlatParameters

ModelType = TypeVar("ModelType", bound=nn.Module)

EMA_DECAY = 0.9999
"""Decay after many updates."""
EMA_RAMP_UPDATES = 2000
"""Number of updates after which the decay has reached 63 % of its final value."""


def ema_decay(updates: int) -> float:
    """Decay that is used for an update, counted from 1."""
    return EMA_DECAY * (1 - math.exp(-updates / EMA_RAMP_UPDATES))


class ModelEma(Generic[ModelType]):
    """A second model whose parameters and float buffers follow the trained one; integer buffers keep their value.

    Args:
        model: the trained model; a copy of it is the starting point.
        flat: the memory of the model's trained parameters, when they lie in one vector; the average's then do too, and
            are updated by one kernel.
    """

    def __init__(self, model: ModelType, flat: FlatParameters | None = None) -> None:
        self.model: ModelType = copy.deepcopy(model).eval().requires_grad_(False)
        self.updates = 0
        """Done so far; a resumed run sets it."""
        together = {} if flat is None else {name: p for name, p in model.named_parameters() if flat.holds(p)}
        self._sources, self._averages = _float_tensors(model, together), _float_tensors(self.model, together)
        if flat is not None:
            own = dict(self.model.named_parameters())
            self._sources.append(flat.values)
            self._averages.append(flat.mirror({p: own[name] for name, p in together.items()}))

    @torch.no_grad()
    def update(self) -> None:
        """Moves the average towards the trained model by one step, without waiting for the device."""
        self.updates += 1
        torch._foreach_lerp_(self._averages, self._sources, 1 - ema_decay(self.updates))


def _float_tensors(model: nn.Module, without: Container[str]) -> list[Tensor]:
    values = model.state_dict()
    return [values[name].detach() for name in values if values[name].is_floating_point() and name not in without]
