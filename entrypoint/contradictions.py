"""Options that cannot be, contradict each other or have nothing left to do: refused, or said in one line."""

import math
import os
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from entrypoint.options import options_of
from entrypoint.request import JobOptions, JobRequest
from yolov9.config.picture_size import STRIDE, rounded_size
from yolov9.config.settings import PredictSettings, TrainSettings
from yolov9.config.small_data import is_small
from yolov9.config.stages import parse_growth, parse_stages
from yolov9.errors import UserError

LONGEST_NAME = 240
"""Bytes; file systems take 255, and a number may be appended."""
RANGES: dict[str, tuple[float, float]] = {
    "imgsz": (STRIDE, 16384),
    "workers": (0, math.inf),
    "jobs": (1, 1024),
    "epochs": (1, 1_000_000),
    "close_mosaic": (0, math.inf),
    "patience": (0, math.inf),
    "batch_size": (-math.inf, 65536),
    "optimisation_batch": (1, 1_000_000),
    "accumulate": (1, 65536),
    "prefetch": (1, 1024),
    "mosaic_window": (0, 100_000),
    "min_items": (0, math.inf),
    "max_det": (1, 100_000),
    "vid_stride": (1, math.inf),
    "line_thickness": (1, math.inf),
    "seed": (0, 2**63 - 1),
}
"""Lowest and highest whole number. The highest are more than anybody needs, so a slip of the finger; a seed is a signed
number of 64 bits."""


def check_request(request: JobRequest) -> tuple[str, ...]:
    """Returns one line for each pair of options of which one gives way.

    Raises:
        UserError: values out of range, or options of which none can give way.
    """
    for problem in (*_ranges(request), *_bad_name(request), *_impossible(request)):
        raise problem
    return tuple(_settled(request))


def _ranges(request: JobRequest) -> Iterator[UserError]:
    values = {**vars(request.job), **vars(request.settings)}
    for name, (low, high) in RANGES.items():
        value = values.get(name)
        if value is not None and value < low:
            yield _out_of_range(request, name, f"a whole number from {low} up")
        if value is not None and value > high:
            yield _out_of_range(request, name, f"a whole number of at most {high}")
    batch = values.get("batch_size")
    if batch is not None and batch < 1 and batch != -1:
        yield _out_of_range(request, "batch_size", "a whole number from 1 up, or -1 for what the memory allows")
    for name in ("conf_thres", "iou_thres", "gpu_share", "label_smoothing"):
        value = values.get(name)
        if (value is not None and not 0 <= value <= 1) or (name == "gpu_share" and value == 0):
            yield _out_of_range(request, name, "a number from 0 to 1" if name != "gpu_share" else "above 0, at most 1")

    for name, flag in (("cache_limit_gb", "--cache-limit"), ("worker_timeout_s", "--worker-timeout")):
        value = values.get(name)
        if value is not None and not 0 < value < math.inf:
            yield UserError(found=request.source(name), needed="a number above 0", remedy=f"{flag} 100")
    yield from _bad_lists(request, values)


def _bad_lists(request: JobRequest, values: dict[str, Any]) -> Iterator[UserError]:
    for name in ("freeze", "classes"):
        if any(number < 0 for number in values.get(name) or ()):
            yield _out_of_range(request, name, "whole numbers from 0 up")
    period = values.get("save_period")
    if period is not None and period < 1 and period not in (0, -1):
        yield _out_of_range(request, "save_period", "a whole number from 1 up, or -1 for never")
    minutes = values.get("save_minutes")
    if minutes is not None and not 0 <= minutes < math.inf:
        yield _out_of_range(request, "save_minutes", "a number of minutes from 0 up")


def _bad_name(request: JobRequest) -> Iterator[UserError]:
    """Without this, `--name ..` makes a folder `..2`, and `--name ""` a folder `2`."""
    path = PurePath(request.settings.name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in request.settings.name:
        yield UserError(
            found=f"{request.source('name')}: {request.settings.name!r} is no name of a folder",
            needed="a name inside --project",
            remedy="--project FOLDER --name NAME",
        )
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in path.parts):
        yield UserError(
            found=f"--name of {len(request.settings.name)} characters",
            needed=f"at most {LONGEST_NAME} bytes, so that a number and file names fit behind it",
            remedy="a shorter --name",
        )


def _out_of_range(request: JobRequest, name: str, needed: str) -> UserError:
    option = options_of([type(request.settings), JobOptions])[name]
    remedy = f"{option.flags[0]} {option.example}, or leave it out"
    return UserError(found=request.source(name), needed=needed, remedy=remedy)


def _impossible(request: JobRequest) -> Iterator[UserError]:
    settings = request.settings
    if not isinstance(settings, TrainSettings):
        return
    shapes = [name for name in ("cos_lr", "flat_cos_lr", "fixed_lr") if getattr(settings, name)]
    if len(shapes) > 1:
        flags = ["--" + name.replace("_", "-") for name in shapes]
        yield UserError(found=" and ".join(flags), needed="one shape of the learning rate", remedy=flags[0])
    yield from _growing(request, settings)
    if settings.decode == "gpu" and settings.cache not in ("auto", "off"):
        yield UserError(
            found=f"--decode gpu and --cache {settings.cache}",
            needed="one of them: the cache keeps what the CPU has decoded",
            remedy=f"--decode gpu --cache off, or --decode cpu --cache {settings.cache}",
        )
    if settings.accumulate and request.was_given("optimisation_batch"):
        yield from _not_the_same_pictures(request, settings, settings.accumulate)


def _not_the_same_pictures(request: JobRequest, settings: TrainSettings, accumulate: int) -> Iterator[UserError]:
    """`--accumulate` beside a number of pictures per optimizer step, which is typed or that of a run that goes on."""
    batch, target = settings.asked_batch, settings.optimisation_batch
    source = request.source("optimisation_batch")
    wanted = source if source.startswith("--") else f"{target} pictures per optimizer step ({source})"
    if batch and batch * accumulate != target:
        yield UserError(
            found=f"--batch {batch} x --accumulate {accumulate} = {batch * accumulate}, and {wanted}",
            needed="batch x accumulate equal to the optimisation batch, or two of the three options",
            remedy=f"--batch {batch} --optimisation-batch {target}",
        )
    elif target % accumulate:
        yield UserError(
            found=f"--accumulate {accumulate}, and {wanted}",
            needed=f"a number that divides {target}",
            remedy="leave --accumulate out",
        )


def _growing(request: JobRequest, settings: TrainSettings) -> Iterator[UserError]:
    """`--stages` and `--dynamic-accumulate` beside options that say something else about the same."""
    stages = parse_stages(settings.stages)
    for name in ("rect", "multi_scale", "imgsz"):
        if stages and request.was_given(name) and getattr(settings, name):
            flag = "--" + name.replace("imgsz", "img").replace("_", "-")
            yield UserError(
                found=f"--stages and {flag}", needed="one of them: both set the picture size", remedy="--stages alone"
            )
    total = sum(stage.epochs for stage in stages)
    for name, number in (("imgsz", max((stage.imgsz for stage in stages), default=0)), ("epochs", total)):
        if number > RANGES[name][1]:
            yield UserError(
                found=request.source("stages"),
                needed=f"sizes of at most {RANGES['imgsz'][1]}, {RANGES['epochs'][1]} epochs",
                remedy="--stages 320:20,640:60",
            )
    if stages and request.was_given("epochs") and settings.epochs < total:
        yield UserError(
            found=f"--stages {settings.stages}, {total} epochs together, and --epochs {settings.epochs}",
            needed="the sum of all stages, or more: the last stage goes on",
            remedy=f"--epochs {total}, or leave --epochs out",
        )
    if parse_growth(settings.dynamic_accumulate, settings.epochs) is None:
        return
    for name in ("accumulate", "optimisation_batch"):
        if request.was_given(name):
            flag = "--" + name.replace("_", "-")
            yield UserError(
                found=f"--dynamic-accumulate and {flag}",
                needed="one of them: both set the pictures of a step",
                remedy="--batch N --dynamic-accumulate START:END",
            )


def _settled(request: JobRequest) -> Iterator[str]:
    settings = request.settings
    if rounded_size(settings.imgsz) != settings.imgsz:
        yield f"--img {settings.imgsz}: not a multiple of {STRIDE}; {rounded_size(settings.imgsz)} is used"
    if isinstance(settings, TrainSettings):
        yield from _settled_train(request, settings)
    if isinstance(settings, PredictSettings):
        if settings.augment:
            yield "--augment: test-time augmentation is not offered; ignored"
        if settings.save_conf and not settings.save_txt:
            yield "--save-conf: nothing to do without --save-txt"


def _settled_train(request: JobRequest, settings: TrainSettings) -> Iterator[str]:
    total = sum(stage.epochs for stage in parse_stages(settings.stages))
    epochs = total if total and not request.was_given("epochs") else settings.epochs
    if settings.rect:
        yield "--rect: batches are grouped by shape, so mosaic, mixup and shuffling are off"
    if settings.rect and settings.close_mosaic:
        yield f"--close-mosaic {settings.close_mosaic}: nothing to do, --rect turns mosaic off from the start"
    elif settings.close_mosaic >= epochs:
        yield f"--close-mosaic {settings.close_mosaic}: not less than {epochs} epochs, so mosaic is never on"
    if settings.autoanchor or settings.noautoanchor:
        yield "--autoanchor, --noautoanchor: nothing to do, YOLOv9 has no anchors"
    if settings.label_smoothing:
        yield "--label-smoothing: no effect, the YOLOv9 loss has soft targets of its own"
    if settings.amp == "auto" and request.was_given("amp"):
        yield "--amp: this is the default"
    kept = settings.cache != "off" and (settings.cache != "auto" or is_small(request.training_pictures))
    if settings.cache_limit_gb is not None and not kept:
        yield f"--cache-limit {settings.cache_limit_gb:g}: nothing to do without --cache ram or --cache disk"
    if settings.nosave and settings.save_period > 0:
        yield f"--save-period {settings.save_period}: nothing to do with --nosave"
    if settings.noval and settings.patience and request.was_given("patience"):
        yield f"--patience {settings.patience}: nothing to do with --noval, there are no scores to wait for"
    if request.was_given("resume") and settings.continue_run:
        yield "--continue: nothing to do with --resume, which names the run"
    if request.was_given("resume") and settings.weights:
        yield "--weights: nothing to do with --resume, the checkpoint has the weights"
