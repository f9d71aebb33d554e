"""Parameters and gradients of a model in a few long vectors, so that optimizer, clipping and averaging take a handful
of kernels instead of several per parameter."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

ALIGNMENT = 64
"""Elements between the starts of parameters: 256 bytes in float32, as the CUDA allocator aligns its blocks."""


class FlatParameters:
    """Moves groups of parameters into one vector a group; the parameters become views of it.

    Gradients are views of a second vector in the same way: `parameter.grad` exists from the start and backward passes
    add to it. Convolution weights lie in the layout that they had (channels-last stays channels-last).

    Args:
        groups: parameters of each optimizer group, all float32 and on one device.

    Attributes:
        vectors: one float32 leaf tensor a group, to be given to an optimizer; `.grad` holds the gradients.
    """

    def __init__(self, groups: Sequence[Sequence[nn.Parameter]]) -> None:
        sizes = [[_padded(parameter.numel()) for parameter in group] for group in groups]
        total = sum(map(sum, sizes))
        device = next((parameter.device for group in groups for parameter in group), torch.device("cpu"))
        self.values = torch.zeros(total, device=device)
        self.gradients = torch.zeros(total, device=device)
        self.copies: Tensor | None = None
        self.parameters = [parameter for group in groups for parameter in group]
        self._ids = {id(parameter) for parameter in self.parameters}
        self.vectors: list[Tensor] = []
        start = 0
        for group, lengths in zip(groups, sizes, strict=True):
            length = sum(lengths)
            vector = self.values[start : start + length]
            vector.grad = self.gradients[start : start + length]
            self.vectors.append(vector)
            for parameter, step in zip(group, lengths, strict=True):
                self._adopt(parameter, start)
                start += step

    def _adopt(self, parameter: nn.Parameter, start: int) -> None:
        where = parameter.shape, parameter.stride(), start
        value = self.values.as_strided(*where)
        value.copy_(parameter.data)
        parameter.data = value
        parameter.grad = self.gradients.as_strided(*where)

    def holds(self, parameter: nn.Parameter) -> bool:
        """Tells whether a parameter is one of these."""
        return id(parameter) in self._ids

    def mirror(self, others: Mapping[nn.Parameter, nn.Parameter]) -> Tensor:
        """Moves other parameters into a vector of their own that is laid out like `values`.

        Args:
            others: for each of these parameters one of the same shape.

        Returns:
            The vector; what lies between parameters is zero.
        """
        vector = torch.zeros_like(self.values)
        for parameter in self.parameters:
            view = self.part(vector, parameter)
            view.copy_(others[parameter].data)
            others[parameter].data = view
        return vector

    @staticmethod
    def part(vector: Tensor, parameter: nn.Parameter) -> Tensor:
        """Returns what belongs to one of these parameters in a vector that is laid out like `values`."""
        return vector.as_strided(parameter.shape, parameter.stride(), parameter.storage_offset())

    def make_compute_copies(self, dtype: torch.dtype) -> None:
        """Gives every four-dimensional parameter a `compute_copy` in half precision; see `yolov9.ops.convolution`.

        And a `half_gradient`, zeros in a vector of their own; see `yolov9.ops.half_gradients`.
        """
        self.copies = torch.empty_like(self.values, dtype=dtype)
        half_gradients = torch.zeros_like(self.copies)
        for parameter in self.parameters:
            if parameter.dim() == 4:
                copy, half_gradient = self.part(self.copies, parameter), self.part(half_gradients, parameter)
                parameter.compute_copy = copy  # type: ignore[attr-defined]  # read by yolov9.ops.convolution
                parameter.half_gradient = half_gradient  # type: ignore[attr-defined]  # and by .half_gradients
        self.refresh_compute_copies()

    def refresh_compute_copies(self) -> None:
        """Writes the weights to their copies; needed after every change of them."""
        if self.copies is not None:
            self.copies.copy_(self.values)

    def zero_gradients(self) -> None:
        """Sets all gradients to zero; they stay the same memory, as captured CUDA graphs require."""
        self.gradients.zero_()

    def clip_gradients(self, largest_norm: float) -> Tensor:
        """Scales all gradients so that their common L2 norm is at most `largest_norm`; no host synchronisation.

        Returns:
            The norm before clipping, a scalar on the device.
        """
        # In two stages, the second in float64: one float32 sum over millions of squares is off by 1e-4 on the CPU.
        rows = torch.linalg.vector_norm(self.gradients.view(-1, ALIGNMENT), dim=1)
        norm: Tensor = torch.linalg.vector_norm(rows, dtype=torch.float64).float()
        # The same formula as torch.nn.utils.clip_grad_norm_, including its 1e-6.
        self.gradients.mul_((largest_norm / (norm + 1e-6)).clamp(max=1.0))
        return norm


def _padded(elements: int) -> int:
    return (elements + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
