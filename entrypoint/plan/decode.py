"""Decides where training pictures are decoded and drawn: by loader processes, or on the GPU when these are too few."""

from dataclasses import dataclass

from entrypoint.host import Gpu
from entrypoint.plan.batch import gpu_share
from entrypoint.plan.decision import Decision
from entrypoint.plan.memory_model import PICTURE_MIB_AT_640, family
from entrypoint.request import JobRequest
from entrypoint.units import MIB, size_text
from yolov9.config.decode_memory import DECODED_AT_ONCE_BYTES, picture_store_bytes
from yolov9.config.settings import TrainSettings
from yolov9.config.small_data import is_small, mosaic_window
from yolov9.errors import ExitCode, UserError

SAMPLES_PER_CPU = 250
"""Samples a second that one core decodes and draws, scratch-high at 640 px, without a cache (docs/measurements.md,
Loader: 2,013 with 8 processes beside an H200). Training and loading both slow down with the area of the pictures, so no
other size has to be looked at."""
FASTEST_STEP = ("yolov9-s", 1123)
"""Model, and pictures a second that its training takes on one H200, batch 64 (docs/measurements.md). Other models are
taken to be slower by what they keep per picture in the GPU's memory: 390 for yolov9-c, of which 336 were measured."""
JPEG_ENGINES = frozenset({(8, 0), (9, 0), (10, 0)})
"""Compute capabilities of cards with a JPEG decoder in hardware that torchvision uses: A100, H100, H200, B200. On the
others nvJPEG takes the CPU for a good part of the work."""
DECODER_BYTES = 512 * MIB
"""nvJPEG's code and buffers, not measured: as much as all of CUDA's context and kernels that are loaded late."""
MOST_OF_THE_MEMORY = 0.1
"""Share of this job's GPU memory that decoding may take without being asked for: the rest is for the batch."""


@dataclass(frozen=True, kw_only=True)
class DecodePlan:
    """Where pictures are decoded, and the memory that it takes on the GPU."""

    decisions: tuple[Decision, ...] = ()
    gpu_bytes: int = 0


def decide_decode(request: JobRequest, gpus: tuple[Gpu, ...], workers: int) -> DecodePlan:
    """Returns `cpu` or `gpu` for the `--decode` of a training; nothing for other commands.

    Args:
        request: settings, and what was given.
        gpus: of the job.
        workers: loader processes of one rank.

    Raises:
        UserError: `--decode gpu` without a GPU; a run that goes on where there is none decodes on the CPU.
    """
    settings = request.settings
    if not isinstance(settings, TrainSettings):
        return DecodePlan()
    if settings.decode == "gpu" and not gpus and request.is_of_former_start("decode"):
        reason = "this time on the CPU, as the whole training; colours differ by rounding"
        decision = Decision(name="decode", value="cpu", source=request.source("decode"), reason=reason, degraded=True)
        return DecodePlan(decisions=(decision,))
    if settings.decode == "gpu" and not gpus:
        raise UserError(
            found="--decode gpu, and a training on the CPU",
            needed="an NVIDIA GPU that this job may use",
            remedy="--decode cpu, or a GPU: docker run --gpus all …",
            exit_code=ExitCode.NO_GPU,
        )
    need = _gpu_bytes(request, settings)
    given = request.was_given("decode")
    value, reason = settings.decode, "asked for" if given else "--decode auto lets the plan choose"
    if settings.decode == "auto":
        value, reason = _automatic(request, settings, gpus, workers, need)
    source = request.source("decode") if given else "default"
    decision = Decision(name="decode", value=value, source=source, reason=reason)
    return DecodePlan(decisions=(decision,), gpu_bytes=need if value == "gpu" else 0)


def pictures_per_s(model: str) -> int:
    """Returns how many pictures a second the training of a model takes on the fastest card that was measured."""
    known, speed = FASTEST_STEP
    return round(speed * PICTURE_MIB_AT_640[known] / PICTURE_MIB_AT_640[family(model)])


def _automatic(
    request: JobRequest, settings: TrainSettings, gpus: tuple[Gpu, ...], workers: int, need: int
) -> tuple[str, str]:
    """Returns the value and why."""
    if not gpus:
        return "cpu", "there is no GPU"
    if settings.cache not in ("auto", "off"):
        return "cpu", f"--cache {settings.cache} keeps what the CPU has decoded"
    if settings.cache == "auto" and is_small(request.training_pictures):
        return "cpu", f"{request.training_pictures} pictures, which can stay decoded in memory"
    made, taken = workers * SAMPLES_PER_CPU, pictures_per_s(request.model)
    rates = f"{workers} x {SAMPLES_PER_CPU} samples/s, {taken} are what {family(request.model)} takes on an H200"
    if made >= taken:
        return "cpu", f"the loader processes are enough: {rates}"
    if any(gpu.is_mig or gpu.capability not in JPEG_ENGINES for gpu in gpus):
        return "cpu", f"{rates}; this GPU has no JPEG decoder in hardware; --decode gpu uses nvJPEG all the same"
    allowed = min(min(gpu.free_bytes, gpu.total_bytes * gpu_share(request)) for gpu in gpus)
    memory = f"{size_text(need)} of {size_text(int(allowed))} GPU memory"
    if need > MOST_OF_THE_MEMORY * allowed:
        return "cpu", f"{rates}; on the GPU it would take {memory}; --decode gpu does so"
    return "gpu", f"the loader processes are too few: {rates}; takes {memory}"


def _gpu_bytes(request: JobRequest, settings: TrainSettings) -> int:
    asked = settings.asked_batch or settings.optimisation_batch
    window = mosaic_window(settings.mosaic_window, request.training_pictures)
    store = picture_store_bytes(settings.imgsz, window, asked)
    return store + DECODED_AT_ONCE_BYTES + DECODER_BYTES
