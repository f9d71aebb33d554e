"""Decides the number format of the forward pass."""

from entrypoint.host import Gpu
from entrypoint.plan.decision import Decision
from entrypoint.request import JobRequest

BF16_IN_HARDWARE = (8, 0)
"""Compute capability of the first cards that calculate in bf16 (Ampere)."""
FP16_IN_HARDWARE = (7, 0)
"""Compute capability of the first cards with tensor cores, which make fp16 fast (Volta)."""
NAN_IN_FP16 = "GTX 16"
"""Cards without tensor cores whose fp16 convolutions return NaN."""


def decide_amp(gpus: tuple[Gpu, ...], request: JobRequest) -> Decision:
    """Returns the number format of the forward pass: bf16, fp16 or off."""
    asked = getattr(request.settings, "amp", "auto")
    source = request.source("amp") if request.was_given("amp") else "automatic"
    if not gpus:
        degraded = asked in ("bf16", "fp16")
        return Decision(name="amp", value="off", source=source, reason="no gain on the CPU", degraded=degraded)
    if asked == "off":
        return Decision(name="amp", value="off", source=source, reason="everything in float32")
    capability = min((gpu.capability for gpu in gpus if gpu.capability), default=None)
    shown = f"compute capability {capability[0]}.{capability[1]}" if capability else "compute capability unknown"
    if asked == "fp16":
        return Decision(name="amp", value="fp16", source=source, reason=f"asked for; {shown}")
    if capability is not None and capability >= BF16_IN_HARDWARE:
        return Decision(name="amp", value="bf16", source=source, reason=f"{shown}: bf16 in hardware")
    wanted_bf16 = asked == "bf16"
    if any(NAN_IN_FP16 in gpu.name for gpu in gpus):
        return Decision(
            name="amp", value="off", source=source, reason="fp16 gives NaN on GTX 16xx cards", degraded=wanted_bf16
        )
    if capability is not None and capability < FP16_IN_HARDWARE:
        return Decision(
            name="amp", value="off", source=source, reason=f"{shown}: no fast 16-bit arithmetic", degraded=wanted_bf16
        )
    reason = f"{shown}: fp16 with loss scaling, bf16 needs 8.0"
    return Decision(name="amp", value="fp16", source=source, reason=reason, degraded=wanted_bf16)
