"""Copies of many device tensors in the memory of the host, with few transfers."""

from collections.abc import Mapping

import torch
from torch import Tensor


def copy_to_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns contiguous copies on the CPU; later changes of the originals do not reach them.

    Tensors of one type and device travel as one flat tensor, so that hundreds of small ones cost one wait.
    """
    groups: dict[tuple[torch.device, torch.dtype], list[str]] = {}
    for name, tensor in tensors.items():
        groups.setdefault((tensor.device, tensor.dtype), []).append(name)
    copies: dict[str, Tensor] = {}
    for (device, _), names in groups.items():
        if device.type == "cpu":
            copies.update((name, tensors[name].detach().clone(memory_format=torch.contiguous_format)) for name in names)
            continue
        try:
            flat = torch.cat([tensors[name].detach().flatten() for name in names]).cpu()
        except torch.OutOfMemoryError:
            # One after the other takes longer, and no memory of the device.
            copies.update((name, tensors[name].detach().cpu().contiguous()) for name in names)
            continue
        parts = torch.split(flat, [tensors[name].numel() for name in names])
        copies.update((name, part.view(tensors[name].shape).clone()) for name, part in zip(names, parts, strict=True))
    return {name: copies[name] for name in tensors}


def all_finite(tensors: Mapping[str, Tensor]) -> bool:
    """Tells whether no float tensor holds an infinite value or one that is not a number."""
    return all(bool(torch.isfinite(value).all()) for value in tensors.values() if value.is_floating_point())
