"""Decides on which device(s) a job runs."""

from dataclasses import dataclass

from entrypoint.host import Gpu, HostFacts
from entrypoint.host.wheel import version_pair
from entrypoint.plan.decision import Decision
from entrypoint.plan.visible import visible_gpus
from entrypoint.request import JobRequest
from entrypoint.units import size_text
from yolov9.errors import ExitCode, UserError

ADD_GPU = "docker run --gpus all …   (or run on the CPU: --device cpu)"


@dataclass(frozen=True, kw_only=True)
class Devices:
    """GPUs of a job; none means the CPU."""

    gpus: tuple[Gpu, ...]
    decisions: tuple[Decision, ...]
    visible_devices: str | None = None
    """CUDA_VISIBLE_DEVICES for the trainer when it must differ from this process's."""

    @property
    def ranks(self) -> int:
        """Trainer processes: one per GPU."""
        return max(1, len(self.gpus))


def choose_devices(facts: HostFacts, request: JobRequest) -> Devices:
    """Returns the devices.

    Raises:
        UserError: a GPU was asked for and is not there, or one is there and cannot be used (exit code 69).
    """
    asked = request.settings.device.strip().lower().removeprefix("cuda:")
    visible = visible_gpus(facts.gpu.devices, request.environment.visible_devices)
    if asked == "cpu":
        return _cpu(request.source("device"), "asked for")
    if asked in ("", "auto"):
        return _automatic(facts, request, visible)
    return _named(facts, request, visible)


def gpu_problem(facts: HostFacts, gpu: Gpu) -> str | None:
    """Says why the installed PyTorch cannot use a GPU, with the remedy; None when nothing speaks against it."""
    wheel, minimum = facts.wheel, facts.wheel.minimum_driver()
    if wheel.torch is not None and wheel.cuda is None:
        return f"PyTorch {wheel.torch} is a build without CUDA; use the cuda13 or cuda12 image"
    driver = version_pair(facts.gpu.driver)
    if minimum and driver and driver < minimum:
        older = "; or use the cuda12 image, which needs 525.60" if minimum[0] > 525 and driver >= (525, 60) else ""
        return (
            f"driver {facts.gpu.driver} is too old for CUDA {wheel.cuda}: "
            f"install driver {minimum[0]}.{minimum[1]:02d} or newer on the host{older}"
        )
    if wheel.supports(gpu.capability) is False and gpu.capability:
        newer = gpu.capability >= (10, 0)
        return (
            f"{gpu.name} (compute capability {gpu.capability[0]}.{gpu.capability[1]}) has no code in the wheels for "
            f"CUDA {wheel.cuda}: use the {'cuda13' if newer else 'cuda12'} image"
        )
    return None


def _cpu(source: str, reason: str, *, degraded: bool = False) -> Devices:
    decision = Decision(name="device", value="cpu", source=source, reason=reason, degraded=degraded)
    return Devices(gpus=(), decisions=(decision,))


def _automatic(facts: HostFacts, request: JobRequest, visible: tuple[Gpu, ...]) -> Devices:
    if not visible:
        why = facts.gpu.problem or "the driver shows none"
        if request.environment.visible_devices is not None and facts.gpu.devices:
            why = f"CUDA_VISIBLE_DEVICES={request.environment.visible_devices} hides all {len(facts.gpu.devices)}"
        reason = f"NO GPU IS VISIBLE ({why}): this will be slow; to use one: {ADD_GPU.split('   ')[0]}"
        return _cpu("automatic", reason, degraded=True)
    if facts.wheel.torch is not None and facts.wheel.cuda is None:
        reason = f"A GPU IS VISIBLE AND NOT USED: {gpu_problem(facts, visible[0])}"
        return _cpu("automatic", reason, degraded=True)
    usable = [gpu for gpu in visible if gpu_problem(facts, gpu) is None]
    if not usable:
        raise UserError(
            found="; ".join(f"GPU {gpu.index}: {gpu_problem(facts, gpu)}" for gpu in visible),
            needed="a GPU that the installed PyTorch can use",
            remedy="what is said above, or --device cpu to run on the CPU all the same",
            exit_code=ExitCode.NO_GPU,
        )
    best = max(usable, key=lambda gpu: gpu.free_bytes)
    return _chosen(facts, (best,), visible, "automatic", _why_best(visible))


def _named(facts: HostFacts, request: JobRequest, visible: tuple[Gpu, ...]) -> Devices:
    chosen: list[Gpu] = []
    for word in request.settings.device.split(","):
        gpu = _find(visible, word.strip())
        if gpu is None:
            raise _absent(facts, request, visible)
        problem = gpu_problem(facts, gpu)
        if problem:
            raise UserError(
                found=f"--device {request.settings.device}: {problem}",
                needed="a GPU that the installed PyTorch can use",
                remedy="what is said above, or --device cpu",
                exit_code=ExitCode.NO_GPU,
            )
        chosen.append(gpu)
    if len({gpu.uuid for gpu in chosen}) != len(chosen):
        raise UserError(
            found=f"--device {request.settings.device}: a GPU is named twice",
            needed="each GPU once",
            remedy="--device 0",
        )
    return _chosen(facts, tuple(chosen), visible, request.source("device"), "asked for")


def _find(visible: tuple[Gpu, ...], word: str) -> Gpu | None:
    """Numbers count within what CUDA shows; a MIG slice has a number there too."""
    word = "0" if word.lower() == "cuda" else word.lower().removeprefix("cuda:")
    if word.isdigit():
        return visible[int(word)] if int(word) < len(visible) else None
    return next((gpu for gpu in visible if word and gpu.uuid.lower().startswith(word)), None)


def _absent(facts: HostFacts, request: JobRequest, visible: tuple[Gpu, ...]) -> UserError:
    if visible:
        shown = ", ".join(f"{number} = {gpu.name} ({gpu.uuid})" for number, gpu in enumerate(visible))
        needed, remedy = "a GPU that is visible here", "--device 0"
    else:
        shown = f"no GPU is visible ({facts.gpu.problem or 'the driver shows none'})"
        needed, remedy = "a GPU passed to the container, and the NVIDIA driver on the host", ADD_GPU
    hidden = request.environment.visible_devices
    if hidden is not None and len(visible) < len(facts.gpu.devices):
        shown += f"; CUDA_VISIBLE_DEVICES={hidden} hides {len(facts.gpu.devices) - len(visible)}"
    return UserError(
        found=f"--device {request.settings.device}: {shown}", needed=needed, remedy=remedy, exit_code=ExitCode.NO_GPU
    )


def _chosen(facts: HostFacts, gpus: tuple[Gpu, ...], visible: tuple[Gpu, ...], source: str, reason: str) -> Devices:
    """The trainer gets numbers. Slices have none of their own for CUDA, so they are handed over by UUID."""
    if any(gpu.is_mig for gpu in gpus):
        names: str | None = ",".join(gpu.uuid for gpu in gpus)
        value = ",".join(str(number) for number in range(len(gpus)))
    else:
        names = None
        value = ",".join(str(visible.index(gpu)) for gpu in gpus)
    decisions = [Decision(name="device", value=value, source=source, reason=reason)]
    decisions.extend(_describe(facts, gpu) for gpu in gpus)
    return Devices(gpus=gpus, decisions=tuple(decisions), visible_devices=names)


def _why_best(visible: tuple[Gpu, ...]) -> str:
    if len(visible) == 1:
        return "the only visible GPU"
    everything = ",".join(map(str, range(len(visible))))
    return f"most free memory of {len(visible)} visible GPUs; all of them: --device {everything}"


def _describe(facts: HostFacts, gpu: Gpu) -> Decision:
    reason = f"{size_text(gpu.free_bytes)} free of {size_text(gpu.total_bytes)}"
    driver = f"driver {facts.gpu.driver or 'unknown'} (CUDA {facts.gpu.cuda or 'unknown'})"
    return Decision(
        name="gpu",
        value=f"{gpu.name} {gpu.uuid}",
        source=f"{facts.gpu.source}, {driver}, PyTorch for CUDA {facts.wheel.cuda or 'unknown'}",
        reason=reason,
    )
