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
    for names in groups.values():
        originals = [tensors[name].detach() for name in names]
        try:
            parts = _at_once(originals)
        except torch.OutOfMemoryError:
            # One after the other takes longer, and no memory of the device.
            parts = [torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor) for tensor in originals]
        copies.update(zip(names, parts, strict=True))
    return {name: copies[name] for name in tensors}


def _at_once(tensors: list[Tensor]) -> list[Tensor]:
    flat = torch.cat([tensor.flatten() for tensor in tensors]).cpu()
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape).clone() for part, tensor in zip(parts, tensors, strict=True)]


def all_finite(tensors: Mapping[str, Tensor]) -> bool:
    """Tells whether no float tensor holds an infinite value or one that is not a number."""
    return all(bool(torch.isfinite(value).all()) for value in tensors.values() if value.is_floating_point())
