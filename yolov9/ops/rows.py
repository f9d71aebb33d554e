"""Channels-last tensors seen as matrices: one row a pixel, one column a channel."""

import torch
from torch import Tensor


def row_stride(tensor: Tensor) -> int | None:
    """Returns the distance in elements between neighbouring pixels of B x C x H x W.

    None when the tensor is neither channels-last nor a channel slice of a channels-last tensor.
    """
    batch, channels, height, width = tensor.shape
    if batch * height * width == 1:
        return channels
    stride = tensor.stride(3) if width > 1 else (tensor.stride(2) if height > 1 else tensor.stride(0))
    expected = ((batch, height * width * stride), (channels, 1), (height, width * stride), (width, stride))
    same = all(size == 1 or tensor.stride(axis) == step for axis, (size, step) in enumerate(expected))
    return stride if same and stride >= channels else None


def as_rows(tensor: Tensor) -> tuple[Tensor, int]:
    """Returns the tensor and its row stride, copied to channels-last only when it has none."""
    stride = row_stride(tensor)
    if stride is None:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
        stride = tensor.shape[1]
    return tensor, stride


def empty_rows(like: Tensor, channels: int) -> Tensor:
    """Returns an uninitialised channels-last tensor B x channels x H x W with dtype and device of `like`."""
    batch, _, height, width = like.shape
    return torch.empty(
        (batch, channels, height, width), dtype=like.dtype, device=like.device, memory_format=torch.channels_last
    )


def channel_slice(tensor: Tensor, start: int, channels: int) -> Tensor:
    """Returns channels of a channels-last tensor as a tensor that shares its memory but is no view to autograd."""
    narrow = tensor.new_empty(0)
    shape = (tensor.shape[0], channels, *tensor.shape[2:])
    narrow.set_(tensor.untyped_storage(), tensor.storage_offset() + start, shape, tensor.stride())
    return narrow
