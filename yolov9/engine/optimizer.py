"""Parameter groups and optimizers of the recipe, and their state by parameter name for checkpoints."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from yolov9.engine.flat import FlatParameters
from yolov9.engine.lion import Lion
from yolov9.engine.schedule import StepValues
from yolov9.engine.without_compiler import without_compiler
from yolov9.errors import UserError

ADAM_BETA2 = 0.999
LION_BETA2 = 0.99
NORM_LAYERS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, nn.LayerNorm, nn.GroupNorm)

NamedParameters = list[tuple[str, nn.Parameter]]


@dataclass(frozen=True)
class ParameterGroups:
    """All parameters of a model, each in one group, in the order of the modules."""

    biases: NamedParameters
    """No decay; warm up from their own learning rate."""
    decayed: NamedParameters
    """Convolution weights, and whatever is neither a bias nor a normalisation weight."""
    norms: NamedParameters
    """Scales of normalisation layers; no decay."""

    def __iter__(self) -> Any:
        return iter((self.biases, self.decayed, self.norms))

    @property
    def name_of(self) -> dict[nn.Parameter, str]:
        """Name of every parameter."""
        return {parameter: name for group in self for name, parameter in group}


def group_parameters(model: nn.Module) -> ParameterGroups:
    """Sorts the parameters of a model into biases, decayed weights and normalisation weights."""
    groups = ParameterGroups([], [], [])
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            entry = (f"{prefix}.{name}" if prefix else name, parameter)
            if name == "bias":
                groups.biases.append(entry)
            elif isinstance(module, NORM_LAYERS):
                groups.norms.append(entry)
            else:
                groups.decayed.append(entry)
    return groups


def build_optimizer(
    groups: ParameterGroups, kind: str, *, lr: float, momentum: float, weight_decay: float, fused: bool = False
) -> Optimizer:
    """Makes the optimizer with its three groups: biases, decayed weights, normalisation weights.

    Args:
        groups: result of `group_parameters`.
        kind: SGD (with Nesterov momentum), Adam, AdamW (with the AMSGrad maximum) or LION.
        lr: learning rate; the schedule replaces it before the first step.
        momentum: SGD's momentum, or the first beta.
        weight_decay: decay of the second group, already scaled to the pictures of a step.
        fused: use one kernel per group; it takes no memory in the middle of an update, so that one that runs out of it
            can be repeated, and it leaves an update out by a flag on the device. The numbers are the same.

    Raises:
        UserError: unknown kind.
    """
    biases, decayed, norms = ([parameter for _, parameter in group] for group in groups)
    params: list[dict[str, Any]] = [
        {"params": biases, "weight_decay": 0.0},
        {"params": decayed, "weight_decay": weight_decay},
        {"params": norms, "weight_decay": 0.0},
    ]
    if kind == "SGD":
        return without_compiler(SGD, params, lr=lr, momentum=momentum, nesterov=momentum > 0, fused=fused or None)
    if kind == "Adam":
        return without_compiler(Adam, params, lr=lr, betas=(momentum, ADAM_BETA2), fused=fused or None)
    if kind == "AdamW":
        betas = (momentum, ADAM_BETA2)
        return without_compiler(AdamW, params, lr=lr, betas=betas, weight_decay=0.0, amsgrad=True, fused=fused or None)
    if kind == "LION":
        return without_compiler(Lion, params, lr=lr, betas=(momentum, LION_BETA2))
    raise UserError(found=f"--optimizer {kind}", needed="one of SGD, Adam, AdamW, LION", remedy="--optimizer SGD")


def set_step_values(optimizer: Optimizer, values: StepValues) -> None:
    """Writes the schedule's learning rates, and the momentum where the optimizer has one, into the groups."""
    for group, lr in zip(optimizer.param_groups, values.learning_rates, strict=True):
        group["lr"] = lr
        if "momentum" in group:
            group["momentum"] = values.momentum


def can_skip_on_device(optimizer: Optimizer) -> bool:
    """Tells whether the optimizer leaves everything as it is when its `found_inf` tensor is 1."""
    return all(group.get("fused") for group in optimizer.param_groups)


def prepare_state(optimizer: Optimizer, flat: FlatParameters) -> None:
    """Gives SGD zero momenta and Adam zero moments; those of one kind lie in one vector.

    A first step from zeros is the same as a first step without momentum, and a fused first step that is skipped would
    otherwise leave memory that nobody has written. The memory is taken now, not in the middle of the first step.

    Args:
        optimizer: fresh, of parameters in `flat` and of frozen ones.
        flat: the memory of the trained parameters.
    """
    vectors = {name: torch.zeros_like(flat.values) for name in _state_names(optimizer.param_groups[0])}
    for group in optimizer.param_groups:
        for parameter in filter(flat.holds, group["params"]):
            state = {name: flat.part(vector, parameter) for name, vector in vectors.items()}
            if "amsgrad" in group:
                # Step counters live on the CPU unless the kernel that reads them is fused.
                state["step"] = torch.zeros((), device=parameter.device if group["fused"] else "cpu")
            optimizer.state[parameter].update(state)


def _state_names(group: dict[str, Any]) -> list[str]:
    if "momentum" in group:
        return ["momentum_buffer"] if group["momentum"] else []
    if "amsgrad" in group:
        return ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else [])]
    return ["exp_avg"]


def optimizer_state(optimizer: Optimizer, groups: ParameterGroups) -> dict[str, dict[str, Tensor]]:
    """Returns the tensors that the optimizer keeps, by parameter name; they are not copied."""
    names = groups.name_of
    return {
        names[cast(nn.Parameter, parameter)]: {key: value for key, value in state.items() if isinstance(value, Tensor)}
        for parameter, state in optimizer.state.items()
    }


def load_optimizer_state(
    optimizer: Optimizer, groups: ParameterGroups, saved: dict[str, dict[str, Tensor]]
) -> list[str]:
    """Puts saved tensors back, on the device and in the memory format of each parameter.

    Returns:
        Names whose saved state does not fit any more or is missing; they start afresh.
    """
    unfit = []
    for parameter, name in groups.name_of.items():
        state = saved.get(name)
        if not state:
            if parameter.requires_grad:
                unfit.append(name)
            continue
        if any(value.dim() > 0 and value.shape != parameter.shape for value in state.values()):
            unfit.append(name)
            continue
        present = optimizer.state[parameter]
        for key, value in state.items():
            present[key] = _as_state(value, parameter, optimizer, present.get(key))
    return unfit


def _as_state(value: Tensor, parameter: nn.Parameter, optimizer: Optimizer, present: Tensor | None) -> Tensor:
    if value.dim() > 0:
        place = torch.empty_like(parameter, memory_format=torch.preserve_format) if present is None else present
        return place.copy_(value)
    # Step counters live on the CPU unless the kernel that reads them is fused.
    return value.to(parameter.device) if can_skip_on_device(optimizer) else value.cpu().clone()
