"""Keys by which compiled kernels are found again, alike in every process."""

import pkgutil
from importlib import import_module

from triton.runtime.jit import JITFunction

import yolov9.loss
import yolov9.ops


def settle_kernel_keys() -> None:
    """Works out the keys of all kernels in one order; to be called before the first launch.

    A key covers the constants of the functions that a kernel calls. Triton 3.6 forgets those of a function whose own
    key nobody has asked for yet, so a key depends on which kernels were launched before, and what one process has
    compiled another one does not find. Triton 3.8 does not forget them; 3.3 does not look at them.
    """
    for package in (yolov9.ops, yolov9.loss):
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if found.name.endswith("_triton"):
                for kernel in vars(import_module(found.name)).values():
                    if isinstance(kernel, JITFunction):
                        _ = kernel.cache_key
