"""The kernels that a piece of work launches, found without a GPU: on tensors that have a shape and no content.

Such tensors lie on PyTorch's `meta` device, where every operation works out shapes and nothing else. What a compiler
wants to know of a launch is there all the same: types, places in memory, and numbers.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from triton.backends.nvidia import driver
from triton.runtime.jit import JITFunction

from yolov9.ops.plain import Capability, kernels_on_meta

WORD_BYTES = 16
"""Kernels are compiled for addresses and numbers that are multiples of this, and for those that are not."""
LARGEST_INT32 = 2**31 - 1


@dataclass(frozen=True)
class StandIn:
    """What a compilation wants to know of a tensor; memory itself begins at multiples of 512 bytes."""

    dtype: torch.dtype
    offset_bytes: int

    def data_ptr(self) -> int:
        """An address that is a multiple of the same powers of two, up to 256, as the real one."""
        return self.offset_bytes


@dataclass(frozen=True)
class Launch:
    """A kernel with arguments of one kind."""

    kernel: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    @classmethod
    def of(cls, kernel: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> "Launch":
        """The launch without its tensors."""
        return cls(kernel, tuple(map(_stand_in, arguments)), {name: _stand_in(options[name]) for name in options})

    @property
    def kind(self) -> tuple[Any, ...]:
        """Equal for launches that one compiled kernel does."""
        fixed = {name: repr(value) for name, value in self.options.items()}
        return (self.kernel.__name__, *map(_kind, self.arguments), *sorted(fixed.items()))

    def compile(self) -> None:
        """Compiles the kernel for the active target, and what launches it; both stay in Triton's cache folder."""
        compiled = self.kernel.run(*self.arguments, grid=(1,), warmup=True, **self.options)
        if hasattr(driver, "make_launcher"):  # Triton before 3.8 builds a C module for each list of argument types.
            with suppress(Exception):  # No kernel is given up for it: the first launch tries again, and says why not.
                driver.CudaLauncher(compiled.src, compiled.metadata)


@contextmanager
def caught_launches(capability: Capability) -> Iterator[dict[tuple[Any, ...], Launch]]:
    """Within this context nothing is launched: the dictionary fills with one launch of each kind.

    Tensors have to be on the meta device. Autocast does not know it and is left out.

    Args:
        capability: of the card that they stand for.
    """
    caught: dict[tuple[Any, ...], Launch] = {}

    def catch(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        launch = Launch.of(kernel, arguments, options)
        caught.setdefault(launch.kind, launch)

    with ExitStack() as stack:
        stack.enter_context(_replaced(JITFunction, "run", catch))
        stack.enter_context(_replaced(torch, "autocast", lambda *_, **__: nullcontext()))
        stack.enter_context(kernels_on_meta(capability))
        stack.enter_context(_ConvolutionsAsOnACard())  # type: ignore[no-untyped-call]  # not annotated in torch
        yield caught


class _ConvolutionsAsOnACard(TorchDispatchMode):  # type: ignore[no-untyped-call]  # as above
    """Results of convolutions are channels-last, as cuDNN makes them of channels-last pictures."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.convolution.default:
            return _channels_last(result)
        if func is torch.ops.aten.convolution_backward.default:
            return tuple(map(_channels_last, result))
        return result


def _channels_last(tensor: Tensor | None) -> Tensor | None:
    if tensor is None or tensor.dim() != 4:
        return tensor
    return tensor.contiguous(memory_format=torch.channels_last)


def _stand_in(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return StandIn(value.dtype, int(value.storage_offset()) * value.element_size())


def _kind(value: Any) -> Any:
    """What Triton compiles a kernel anew for."""
    if isinstance(value, StandIn):
        return value.dtype, value.offset_bytes % WORD_BYTES == 0
    if isinstance(value, int) and not isinstance(value, bool):
        return "one" if value == 1 else (value % WORD_BYTES == 0, value > LARGEST_INT32)
    return type(value)


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    former = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, former)
