"""From facts and a request to a plan; pure: nothing is read, written or started here."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from entrypoint.contradictions import check_request
from entrypoint.host import HostFacts
from entrypoint.plan.amp import decide_amp
from entrypoint.plan.batch import decide_batch, gpu_share
from entrypoint.plan.cpus import cpu_share, decide_fixed_workers, decide_threads, decide_workers
from entrypoint.plan.decision import Budget, Decision, Need, Plan
from entrypoint.plan.decode import DecodePlan, decide_decode
from entrypoint.plan.device import Devices, choose_devices
from entrypoint.plan.folders import decide_cache_dir, decide_temporary_dir
from entrypoint.plan.host_memory import plan_host_memory
from entrypoint.plan.neighbours import describe_neighbours
from entrypoint.plan.processes import fit_processes
from entrypoint.plan.staging import plan_staging
from entrypoint.request import JobRequest
from entrypoint.units import size_text
from yolov9.config.picture_size import STRIDE, rounded_size
from yolov9.config.settings import DetectSettings, TrainSettings, ValSettings
from yolov9.config.stages import parse_stages
from yolov9.errors import ExitCode, UserError

__all__ = ["Budget", "Decision", "Need", "Plan", "make_plan", "planned_settings"]

IN_SETTINGS = (
    "device",
    "gpu_share",
    "imgsz",
    "epochs",
    "workers",
    "batch_size",
    "accumulate",
    "optimisation_batch",
    "amp",
    "cache",
    "cache_limit_gb",
    "decode",
    "decode_again",
    "fixed_workers",
    "prefetch",
)
"""Decisions that become settings of the trainer."""


def make_plan(facts: HostFacts, request: JobRequest) -> Plan:
    """Decides everything that the request leaves open, within the machine's limits.

    Raises:
        UserError: the job cannot run here, or `--strict` and something would have to give way.
    """
    notes = [*request.notes, *check_request(request)]
    devices = choose_devices(facts, request)
    asked_size, settings = request.settings.imgsz, _staged(request)
    request = replace(request, settings=settings)
    share = cpu_share(facts, request, devices.ranks)
    on_gpu = bool(devices.gpus)
    workers = decide_workers(share, request, on_gpu=on_gpu)
    threads = int(decide_threads(share, request, int(workers.value), on_gpu=on_gpu).value)
    workers = fit_processes(facts, request, workers, threads=threads, ranks=devices.ranks, on_gpu=on_gpu)
    amp = decide_amp(devices.gpus, request)
    decode = decide_decode(request, devices.gpus, int(workers.value))
    request = _with_decode(request, decode)
    batch = decide_batch(facts, request, devices.gpus, _format(request, amp), decode.gpu_bytes)
    memory = plan_host_memory(facts, request, devices, workers=workers, batch=batch)
    staging = plan_staging(request, memory.memory, memory.shm)
    cache = decide_cache_dir(facts, request)
    decisions = [
        *devices.decisions,
        *describe_neighbours(facts.gpu, devices.gpus, batch.budget),
        Decision(name="ranks", value=devices.ranks, source="device", reason="one trainer process per device"),
        *_inputs(request, asked_size),
        memory.workers,
        decide_threads(share, request, int(memory.workers.value), on_gpu=on_gpu),
        *_of_training(request, amp),
        *batch.decisions,
        *decode.decisions,
        *memory.decisions,
        *staging.decisions,
        cache,
        *decide_temporary_dir(facts, request),
    ]
    if isinstance(settings, DetectSettings):
        decisions = [decision for decision in decisions if decision.name not in ("workers", "ranks")]
    budgets = tuple(budget for budget in (staging.memory, staging.shm, batch.budget) if budget is not None)
    notes.extend(_warnings(request, budgets, devices))
    plan = Plan(
        command=request.command,
        decisions=tuple(decisions),
        budgets=budgets,
        loaded_batch=batch.batch_size,
        micro_batch=batch.micro_batch,
        environment=dict(_environment(devices, decisions, staging.shm)),
        environment_defaults=_library_caches(cache.value),
        notes=tuple(notes),
    )
    _stop_if_strict(plan, request)
    return plan


def _of_training(request: JobRequest, amp: Decision) -> Iterator[Decision]:
    if isinstance(request.settings, TrainSettings):
        yield decide_fixed_workers(request, asked=request.settings.fixed_workers)
        yield amp


def planned_settings(plan: Plan, request: JobRequest) -> dict[str, Any]:
    """Returns the request's settings with the plan's values filled in."""
    values = dict(vars(request.settings))
    values.update({d.name: d.value for d in plan.decisions if d.name in IN_SETTINGS and d.name in values})
    if "micro_batch" in values:
        # The trainer divides the optimisation batch itself, without rounding before the warm-up has ended.
        values.update(batch_size=plan.loaded_batch, micro_batch=plan.micro_batch, accumulate=None)
    return values


def _format(request: JobRequest, amp: Decision) -> str:
    """Validation computes in float32 unless `--half`."""
    if isinstance(request.settings, TrainSettings):
        return str(amp.value)
    return "fp16" if getattr(request.settings, "half", False) else "off"


def _staged(request: JobRequest) -> TrainSettings | ValSettings | DetectSettings:
    """Settings with the picture size and the epochs: those of `--stages` are the largest size and the sum."""
    settings = request.settings
    stages = parse_stages(settings.stages) if isinstance(settings, TrainSettings) else ()
    if not stages or not isinstance(settings, TrainSettings):
        return replace(settings, imgsz=rounded_size(settings.imgsz))
    epochs = sum(stage.epochs for stage in stages)
    if request.was_given("epochs"):
        epochs = max(epochs, settings.epochs)
    return replace(settings, imgsz=max(stage.imgsz for stage in stages), epochs=epochs)


def _with_decode(request: JobRequest, decode: DecodePlan) -> JobRequest:
    """What follows from it, such as the memory of the loader, is planned with the value that was decided."""
    for decision in decode.decisions:
        request = replace(request, settings=replace(request.settings, decode=decision.value))
    return request


def _inputs(request: JobRequest, asked_size: int) -> Iterator[Decision]:
    settings = request.settings
    stages = getattr(settings, "stages", "")
    reason = f"a multiple of the stride {STRIDE}"
    if stages:
        reason = "the largest of all stages"
    elif settings.imgsz != asked_size:
        reason = f"{asked_size} is not a multiple of the stride {STRIDE}, the next one is taken"
    source = request.source("stages" if stages else "imgsz")
    yield Decision(name="imgsz", value=settings.imgsz, source=source, reason=reason)
    if isinstance(settings, TrainSettings) and stages:
        yield Decision(
            name="epochs", value=settings.epochs, source=request.source("stages"), reason="all stages together"
        )
    yield Decision(
        name="model",
        value=request.model or "unknown",
        source=request.model_source,
        reason="decides the memory estimate",
    )


def _environment(devices: Devices, decisions: list[Decision], shm: Budget) -> Iterator[tuple[str, str]]:
    values = {decision.name: decision.value for decision in decisions}
    yield "OMP_NUM_THREADS", str(values["threads"])
    # A thread that waits for another one sleeps: spinning takes the CPU that the other one needs as soon as a neighbour
    # or a CPU quota is there (measured on 2 CPUs with 6 busy processes: a step of 1.2 s took 4.8 to 7.6 s).
    yield "OMP_WAIT_POLICY", "PASSIVE"
    if devices.gpus:
        # NVML numbers GPUs by bus; CUDA does not unless told, and then --device 0 is another card than planned.
        yield "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
        if devices.visible_devices is not None:
            yield "CUDA_VISIBLE_DEVICES", devices.visible_devices
    elif values["device"] == "cpu":
        yield "CUDA_VISIBLE_DEVICES", ""
    if devices.ranks > 1 and not shm.fits:
        yield "NCCL_SHM_DISABLE", "1"
    if values["cache_dir"] is not None:
        yield "YOLOV9_CACHE_DIR", values["cache_dir"]
    if "temporary_dir" in values:
        yield "TMPDIR", values["temporary_dir"]


def _library_caches(folder: str | None) -> dict[str, str]:
    """Libraries would write into HOME, which may be absent or not writable."""
    if folder is None:
        return {}
    places = {"MPLCONFIGDIR": "matplotlib", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
    return {name: str(Path(folder) / below) for name, below in places.items()}


def _warnings(request: JobRequest, budgets: tuple[Budget, ...], devices: Devices) -> Iterator[str]:
    for budget in budgets:
        if not budget.fits and budget.resource == "memory":
            yield (
                "memory may not suffice: see the table; a smaller --batch or --img, fewer --workers, or a higher "
                "limit (docker run --memory) helps"
            )
        if not budget.fits and budget.resource == "/dev/shm":
            yield "/dev/shm is too small for NCCL: its other transports are used; docker run --shm-size=1g is faster"
    if devices.gpus and gpu_share(request) * request.job.jobs > 1:
        yield f"--gpu-share {gpu_share(request):g} x {request.job.jobs} jobs is more than the whole GPU"


def _stop_if_strict(plan: Plan, request: JobRequest) -> None:
    if not request.job.strict:
        return
    found = [f"{d.name} = {d.value} ({d.source}: {d.reason})" for d in plan.degraded]
    found += [
        f"{budget.resource}: {size_text(budget.needed_bytes)} of {size_text(budget.available_bytes)} ({budget.source})"
        for budget in plan.budgets
        if not budget.fits
    ]
    if found:
        no_gpu = bool(plan.degraded) and plan.degraded[0].name == "device"
        raise UserError(
            found="; ".join(found),
            needed="everything that was asked for, because of --strict",
            remedy="change what is named above, or leave --strict out",
            exit_code=ExitCode.NO_GPU if no_gpu else ExitCode.USAGE,
        )
