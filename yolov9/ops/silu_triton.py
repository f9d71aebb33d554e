"""SiLU and its slope in Triton kernels, by the fast instructions of a GPU where there is one."""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def sigmoid(s) -> tl.tensor:
    """1 / (1 + exp(-s)) by the card's own exp2 and reciprocal, 2**-22 off at most (PTX ISA, ex2.approx, rcp.approx).

    tl.sigmoid takes 7 instructions more, of 25 an element in the loop of `gradient_sums_kernel` (compiled for 9.0).
    """
    if COMPILED:
        power = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [s * -LOG2_E], dtype=tl.float32, is_pure=True, pack=1
        )
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [1.0 + power], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.sigmoid(s)


COMPILED = tl.constexpr(isinstance(sigmoid, triton.JITFunction))
"""False in Triton's interpreter, which knows no instructions of a GPU."""


@triton.jit
def silu_slope(s) -> tl.tensor:
    """Derivative of SiLU: sig + sig * (s - s * sig), two instructions."""
    sig = sigmoid(s)
    return sig + sig * (s - s * sig)
