"""Number format of the forward pass, and how a device is named."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from yolov9.errors import ExitCode, UserError, first_line

BF16_COMPUTE_CAPABILITY = 8
"""NVIDIA cards from this major compute capability on calculate in bf16; older ones emulate it slowly."""


@dataclass(frozen=True)
class Precision:
    """Number format of a forward pass on one device."""

    device: torch.device
    dtype: torch.dtype
    """float32 means that nothing is converted."""

    @property
    def needs_scaler(self) -> bool:
        """True for fp16, whose small gradients would become 0."""
        return self.dtype == torch.float16

    def autocast(self) -> AbstractContextManager[object]:
        """Context in which the model and its loss are called."""
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)


def choose_precision(amp: str, device: torch.device) -> Precision:
    """Turns the setting `--amp` into a number format.

    Args:
        amp: auto, off, bf16 or fp16.
        device: where the model runs; the CPU always calculates in float32 unless a format is named.
    """
    named = {"off": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    if device.type == "cpu":
        return Precision(device, torch.bfloat16 if amp == "bf16" else torch.float32)
    if amp != "auto":
        return Precision(device, named[amp])
    native = torch.cuda.get_device_capability(device)[0] >= BF16_COMPUTE_CAPABILITY
    return Precision(device, torch.bfloat16 if native else torch.float16)


def validation_precision(training: Precision) -> Precision:
    """Number format of validation: fp16 on a GPU, whose mantissa is finer than that of bf16; else as in training."""
    if training.device.type != "cuda" or training.dtype == torch.float32:
        return training
    return Precision(training.device, torch.float16)


def resolve_device(name: str, local_rank: int = 0) -> torch.device:
    """Returns the device of this process.

    Args:
        name: "" (a GPU, or else the CPU), "cpu", "0", "0,1" or "cuda:0". A GPU named by UUID is chosen by
            CUDA_VISIBLE_DEVICES before this process starts and arrives here as "0".
        local_rank: which of several devices is this process's.

    Raises:
        UserError: no such GPU.
    """
    text = name.strip().lower().removeprefix("cuda:")
    if text == "cpu" or (text in ("", "cuda") and not torch.cuda.is_available()):
        return torch.device("cpu")
    numbers = [part.strip() for part in text.split(",")] if text not in ("", "cuda") else ["0"]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = numbers[local_rank] if local_rank < len(numbers) else ""
    if count == 0:
        raise UserError(
            found=f"GPU {name} cannot be used by PyTorch: {_cuda_problem()}",
            needed="a GPU with which CUDA works; that the driver lists it is not enough",
            remedy="`check` tells more; docker run --gpus all … passes a GPU in; --device cpu runs without one",
            exit_code=ExitCode.NO_GPU,
        )
    if not number.isdigit() or int(number) >= count:
        raise UserError(
            found=f"--device {name}, and this process sees {count} usable GPU(s)",
            needed="a GPU number below that, or the CPU",
            remedy="--device cpu",
            exit_code=ExitCode.NO_GPU,
        )
    return torch.device("cuda", int(number))


def _cuda_problem() -> str:
    """What CUDA says when it is started; in one line."""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]  # not annotated
    except (RuntimeError, AssertionError) as error:
        return first_line(error)
    return "it shows no device"


def set_backend_switches(device: torch.device) -> None:
    """Makes a GPU the one that CUDA works on, and lets it use TF32."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
