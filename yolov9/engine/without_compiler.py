"""Optimizers that do not load PyTorch's compiler: nothing here uses it, and importing it takes seconds."""

import inspect
from typing import Any

import torch
from torch.optim import Optimizer

WRAPPED = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
"""Methods that PyTorch wraps in something that keeps the compiler out, and imports it for that."""


def without_compiler(kind: type[Optimizer], params: list[dict[str, Any]], **options: Any) -> Optimizer:
    """Makes an optimizer whose methods are those inside PyTorch's wrappers for its compiler.

    Args:
        kind: its class; nobody differentiates its steps.
        params: parameter groups.
        options: further arguments of the class.
    """
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in WRAPPED}
    step = torch.no_grad()(inspect.unwrap(kind.step))
    light: type[Optimizer] = type(kind.__name__, (kind,), {**methods, "step": step})
    return light(params, **options)
