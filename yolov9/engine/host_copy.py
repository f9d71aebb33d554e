"""Copies of many device tensors in the memory of the host, with few transfers."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

MOST_PADDING = 1.1
"""A block of memory is copied as a whole when it is not larger than so many times the tensors that lie in it."""


def copy_to_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns copies on the CPU; later changes of the originals do not reach them.

    Tensors that share a block of memory travel with it, the others of one type as one flat tensor, so that hundreds of
    small ones cost one wait. They stay parts of what they travelled in: a file of them is written with few calls.
    """
    shared, scattered = _by_memory(tensors)
    copies: dict[str, Tensor] = {}
    for names, block in shared:
        host = block.to("cpu", copy=True)
        for name in names:
            original = tensors[name]
            copies[name] = host.as_strided(original.shape, original.stride(), original.storage_offset())
    groups: dict[tuple[torch.device, torch.dtype], list[str]] = {}
    for name in scattered:
        groups.setdefault((tensors[name].device, tensors[name].dtype), []).append(name)
    for names in groups.values():
        originals = [tensors[name].detach() for name in names]
        try:
            parts = _at_once(originals)
        except torch.OutOfMemoryError:
            # One after the other takes longer, and no memory of the device.
            parts = [torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor) for tensor in originals]
        copies.update(zip(names, parts, strict=True))
    return {name: copies[name] for name in tensors}


def largest_values(tensors: Sequence[Tensor]) -> list[float]:
    """Largest absolute value of each tensor, not a number where it holds such; waits for the device once."""
    filled = [tensor for tensor in tensors if tensor.numel()]
    norms = torch._foreach_norm(filled, ord=math.inf) if filled else []
    found = iter(torch.stack([norm.double() for norm in norms]).tolist() if norms else [])
    return [next(found) if tensor.numel() else 0.0 for tensor in tensors]


def all_finite(tensors: Mapping[str, Tensor]) -> bool:
    """Tells whether no float tensor holds an infinite value or one that is not a number."""
    floats = {name: tensor.detach() for name, tensor in tensors.items() if tensor.is_floating_point()}
    shared, scattered = _by_memory(floats)
    return all(map(math.isfinite, largest_values([*(block for _, block in shared), *(floats[n] for n in scattered)])))


def _by_memory(tensors: Mapping[str, Tensor]) -> tuple[list[tuple[list[str], Tensor]], list[str]]:
    """Blocks of memory that several tensors fill, flat, with the names of these; and the names of all other tensors."""
    together: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        together.setdefault(tensor.untyped_storage().data_ptr(), []).append(name)
    shared: list[tuple[list[str], Tensor]] = []
    scattered: list[str] = []
    for names in together.values():
        if _fill_their_memory([tensors[name] for name in names]):
            first = tensors[names[0]].detach()
            length = first.untyped_storage().nbytes() // first.element_size()
            shared.append((names, first.as_strided((length,), (1,), 0)))
        else:
            scattered += names
    return shared, scattered


def _fill_their_memory(tensors: Sequence[Tensor]) -> bool:
    block_bytes = tensors[0].untyped_storage().nbytes()
    used_bytes = sum(tensor.nbytes for tensor in tensors)
    same_type = all(tensor.dtype == tensors[0].dtype for tensor in tensors)
    return len(tensors) > 1 and same_type and 0 < block_bytes <= MOST_PADDING * used_bytes


def _at_once(tensors: Sequence[Tensor]) -> list[Tensor]:
    flat = torch.cat([tensor.flatten() for tensor in tensors]).cpu()
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
