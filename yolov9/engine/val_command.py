"""The command `val`: scores a model on a split of a data set."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from yolov9.config.environment import read_environment
from yolov9.config.picture_size import fitting_size
from yolov9.config.settings import ValSettings
from yolov9.data import DatasetConfig, DatasetIndex, load_dataset_config
from yolov9.data.loader import LoaderSettings, open_loader
from yolov9.engine.coco_scores import CocoAnnotations, CocoScores, coco_scores, image_id, result_rows
from yolov9.engine.file_names import UniqueNames
from yolov9.engine.final_validation import BatchPictures, class_table, draw_diagrams
from yolov9.engine.find_weights import find_weights
from yolov9.engine.gpu_memory import limit_allocator
from yolov9.engine.judge import Judge
from yolov9.engine.label_rows import label_text
from yolov9.engine.loader_setup import VALIDATION_PAD
from yolov9.engine.out_of_memory import PREDICT_REMEDY, explained
from yolov9.engine.precision import Precision, resolve_device, set_backend_switches
from yolov9.engine.read_split import read_split
from yolov9.engine.result_folder import make_folder, not_writable
from yolov9.engine.validate import Thresholds, ValidationResult, validate
from yolov9.errors import DataError, ExitCode
from yolov9.logs import LOG, show_result
from yolov9.model import DetectionModel, for_inference, load_weights
from yolov9.ops.plain import plain_operations

DEFAULT_BATCH = 32
"""Pictures per forward pass when nobody planned it; the default of the published script."""
DEFAULT_WORKERS = 1
"""Loader processes when nobody planned their number."""
SPEED_TASK = "speed"
"""Value of --task that only measures time, on the pictures of `val`."""
COCO_DATA_NAME = "coco.yaml"
"""A data file of this name turns --save-json on, as the published script does."""
RESULTS_FILE = "predictions.json"


@dataclass(frozen=True)
class ValReport:
    """What a validation found and wrote."""

    result: ValidationResult
    names: tuple[str, ...]
    seconds: float
    """Wall time of reading, network and scoring."""
    coco: CocoScores | None = None


def run(settings: ValSettings, run_dir: Path) -> int:
    """Runs the command and returns the exit code of the process; see `validate_split`."""
    with explained(resolve_device(settings.device), "validation", PREDICT_REMEDY):
        validate_split(settings, run_dir)
    return ExitCode.DONE


def validate_split(settings: ValSettings, run_dir: Path) -> ValReport:
    """Validates a checkpoint on the split that `--task` names; prints a table and writes the files asked for.

    Args:
        settings: options of the command.
        run_dir: folder for the results; made when it is not there.

    Raises:
        UserError: no such weights or device, or weights and data set differ in their classes.
        DataError: the split cannot be used.
    """
    device = resolve_device(settings.device)
    config, index = _read_split(settings)
    annotations = _annotations(settings, config)
    make_folder(run_dir)
    only_speed = settings.task == SPEED_TASK
    keep = not only_speed and (settings.save_txt or _wants_json(settings))
    # The loader's processes start before anything touches the GPU. Kernels of our own would be compiled for seconds,
    # some again for each shape of a batch, which one pass over the pictures does not win back.
    with open_loader(_loader_settings(settings, index, pin=device.type == "cuda")) as loader, plain_operations():
        precision = _precision(settings, device)
        model, names = _prepare_model(settings, index, precision)
        draw = not settings.noplots and not only_speed
        started = time.perf_counter()
        result = validate(
            Judge(model, precision),
            loader,
            thresholds=Thresholds(
                conf=settings.conf_thres,
                iou=settings.iou_thres,
                max_det=settings.max_det,
                single_cls=settings.single_cls,
            ),
            keep_detections=keep,
            watch=BatchPictures(run_dir, names) if draw else None,
        )
        seconds = time.perf_counter() - started
    report = ValReport(result, names, seconds)
    _print(report, settings)
    try:
        if draw:
            draw_diagrams(result, names, run_dir)
        if keep:
            report = _write_files(settings, run_dir, index, report, annotations)
    except OSError as error:
        raise not_writable(run_dir, error) from error
    LOG.info("results in %s", run_dir)
    return report


def _read_split(settings: ValSettings) -> tuple[DatasetConfig, DatasetIndex]:
    split = "val" if settings.task == SPEED_TASK else settings.task
    environment = read_environment()
    config = load_dataset_config(settings.data, require=(split,), environment=environment)
    return config, read_split(settings, config, split, environment)


def _loader_settings(settings: ValSettings, index: DatasetIndex, *, pin: bool) -> LoaderSettings:
    batch = settings.batch_size
    return LoaderSettings(
        index=index,
        imgsz=fitting_size(settings.imgsz),  # of every model: the weights are not read yet
        batch_size=DEFAULT_BATCH if batch is None or batch < 1 else batch,
        workers=DEFAULT_WORKERS if settings.workers is None else max(0, settings.workers),
        seed=settings.seed,
        mode="val",
        rect=True,
        pad=VALIDATION_PAD,
        epochs=1,
        pin=pin,
    )


def _prepare_model(
    settings: ValSettings, index: DatasetIndex, precision: Precision
) -> tuple[DetectionModel, tuple[str, ...]]:
    """Loads and folds the weights; with --single-cls a model of any number of classes fits."""
    model = load_weights(find_weights(settings.weights))
    if model.nc != index.nc and not settings.single_cls:
        raise DataError(
            f"the weights know {model.nc} classes, the data set has {index.nc}",
            "weights that were trained on these classes",
            "--data with the data set of the weights, or --single-cls to compare boxes only",
        )
    _compare_names(model, index, settings)
    set_backend_switches(precision.device)
    limit_allocator(precision.device, settings.gpu_share)
    return for_inference(model, precision.device, precision.dtype), tuple(index.names)


def _compare_names(model: DetectionModel, index: DatasetIndex, settings: ValSettings) -> None:
    """Warns when weights and data set call the same class number by other names; weights without names have numbers."""
    if settings.single_cls or not model.has_class_names:
        return
    differ = [number for number, name in enumerate(index.names) if name != model.names[number]]
    if differ:
        first = differ[0]
        LOG.warning(
            "%d of %d classes have another name in the weights than in the data set: class %d is %r in the weights "
            "and %r in the data set; numbers are compared, not names",
            len(differ),
            model.nc,
            first,
            model.names[first],
            index.names[first],
        )


def _precision(settings: ValSettings, device: torch.device) -> Precision:
    if settings.half and device.type == "cpu":
        LOG.warning("--half: the CPU computes in float32; going on without it")
    on_gpu = device.type == "cuda"
    return Precision(device, torch.float16 if settings.half and on_gpu else torch.float32)


def _print(report: ValReport, settings: ValSettings) -> None:
    result = report.result
    for line in class_table(result, report.names):
        show_result(line)
    each_ms = report.seconds / max(result.pictures, 1) * 1e3
    LOG.info(
        "%d pictures, %d labels in %.1f s: %.1f ms a picture, reading included; %.1f pictures a second at --img %d",
        result.pictures,
        result.labels,
        report.seconds,
        each_ms,
        1e3 / max(each_ms, 1e-9),
        settings.imgsz,
    )


def _wants_json(settings: ValSettings) -> bool:
    return settings.save_json or bool(settings.annotations) or settings.data.endswith(COCO_DATA_NAME)


def _annotations(settings: ValSettings, config: DatasetConfig) -> CocoAnnotations | None:
    """Annotation file that was named, or the one where COCO keeps it; read early, so that mistakes show at once."""
    if settings.annotations:
        return CocoAnnotations(Path(settings.annotations))
    if not _wants_json(settings):
        return None
    for folder in config.splits.get(settings.task, ()):
        path = config.root / "annotations" / f"instances_{folder.stem}.json"
        if path.is_file():
            LOG.info("COCO annotations: %s", path)
            return CocoAnnotations(path)
    return None


def _write_files(
    settings: ValSettings,
    run_dir: Path,
    index: DatasetIndex,
    report: ValReport,
    annotations: CocoAnnotations | None,
) -> ValReport:
    if settings.save_txt:
        _write_label_files(run_dir / "labels", index, report, with_scores=settings.save_conf)
    if not _wants_json(settings):
        return report
    rows, ids = _coco_rows(index, report, annotations)
    (run_dir / RESULTS_FILE).write_text(json.dumps(rows), encoding="ascii")
    LOG.info("%d detections in %s", len(rows), run_dir / RESULTS_FILE)
    if annotations is None:
        return report
    scores = coco_scores(annotations, rows, ids)
    for line in scores.lines() if scores else []:
        show_result(line)
    return ValReport(report.result, report.names, report.seconds, scores)


def _write_label_files(folder: Path, index: DatasetIndex, report: ValReport, *, with_scores: bool) -> None:
    make_folder(folder)
    names = UniqueNames()
    for picture in report.result.detections:
        width, height = (int(side) for side in index.sizes[picture.index])
        text = label_text(picture.rows, (height, width), with_scores=with_scores)
        (folder / f"{names.name(index.path(picture.index))}.txt").write_text(text, encoding="ascii")


def _coco_rows(
    index: DatasetIndex, report: ValReport, annotations: CocoAnnotations | None
) -> tuple[list[dict[str, Any]], Sequence[int | str]]:
    """Detections as COCO results, and the ids of all pictures. Without annotations a category is the class number."""
    categories = annotations.category_ids(report.names) if annotations else list(range(len(report.names)))
    identify = annotations.image_id if annotations else image_id
    rows: list[dict[str, Any]] = []
    ids: list[int | str] = []
    for picture in report.result.detections:
        ids.append(identify(index.path(picture.index)))
        rows += result_rows(ids[-1], picture.rows, categories)
    return rows, ids
