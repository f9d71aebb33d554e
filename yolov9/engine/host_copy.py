"""Copies of many device tensors in the memory of the host, with few transfers."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def copy_to_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns contiguous copies on the CPU; later changes of the originals do not reach them.

    Tensors of one type and device travel as one flat tensor, so that hundreds of small ones cost one wait, and stay
    parts of it, so that a file of them is written with few calls.
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
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def largest_values(tensors: Sequence[Tensor]) -> list[float]:
    """Largest absolute value of each tensor, not a number where it holds such; waits for the device once."""
    filled = [tensor for tensor in tensors if tensor.numel()]
    norms = torch._foreach_norm(filled, ord=math.inf) if filled else []
    found = iter(torch.stack([norm.double() for norm in norms]).tolist() if norms else [])
    return [next(found) if tensor.numel() else 0.0 for tensor in tensors]


def all_finite(tensors: Mapping[str, Tensor]) -> bool:
    """Tells whether no float tensor holds an infinite value or one that is not a number."""
    return all(map(math.isfinite, largest_values([t.detach() for t in tensors.values() if t.is_floating_point()])))
