"""The command `detect`: finds objects in pictures, videos and streams and writes what it found."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from yolov9.config.settings import DetectSettings
from yolov9.data.dataset_config import load_dataset_config
from yolov9.data.read_ahead import read_ahead
from yolov9.data.sources import Source, open_source
from yolov9.data.video import Frame
from yolov9.engine.detect_output import DetectOutput, OutputOptions
from yolov9.engine.detector import Detections, Detector, DetectorOptions
from yolov9.engine.find_weights import find_weights
from yolov9.engine.gpu_memory import limit_allocator
from yolov9.engine.out_of_memory import PREDICT_REMEDY, explained
from yolov9.engine.precision import resolve_device
from yolov9.engine.result_folder import make_folder
from yolov9.engine.stop import StopRequest
from yolov9.errors import DataError, ExitCode, UserError
from yolov9.logs import LOG
from yolov9.model import DetectionModel, load_weights
from yolov9.read_watch import ReadWatch

GROUP_ON_GPU = 16
"""Pictures that a GPU looks at together."""

GROUP_ON_CPU = 1
"""A CPU gains nothing from more."""

GROUPS_READ_AHEAD = 2
FRAME_LINE_PERIOD_S = 5.0
"""Frames of videos and streams are reported at most this often."""


@dataclass
class DetectSummary:
    """What a run did."""

    folder: Path
    frames: int = 0
    """Pictures and frames looked at."""
    objects: Counter[str] = field(default_factory=Counter)
    """Objects per class name."""
    skipped: list[str] = field(default_factory=list)
    """Files that could not be read, with the reason."""
    stopped: bool = False
    """A signal ended it early; what was done until then is complete."""


def run(settings: DetectSettings, run_dir: Path) -> int:
    """Runs the command and returns the exit code of the process; see `detect_files`."""
    with ReadWatch(), explained(resolve_device(settings.device), "detection", PREDICT_REMEDY):
        summary = detect_files(settings, run_dir)
    return ExitCode.STOPPED_RESUMABLE if summary.stopped else ExitCode.DONE


def detect_files(settings: DetectSettings, folder: Path) -> DetectSummary:
    """Finds objects in everything that the source names.

    Args:
        settings: options of the command.
        folder: for the results; made when it is not there.

    Returns:
        What was done; the files are complete.

    Raises:
        UserError: no such source or weights, or nothing could be read.
    """
    device = resolve_device(settings.device)
    limit_allocator(device, settings.gpu_share)
    on_gpu = device.type == "cuda"
    opened = open_source(
        settings.source, vid_stride=settings.vid_stride, group=GROUP_ON_GPU if on_gpu else GROUP_ON_CPU
    )
    detector = Detector(_load_model(settings), settings.device, _detector_options(settings))
    make_folder(folder)
    summary = DetectSummary(folder)
    started = time.perf_counter()
    with (
        StopRequest() as stop,
        opened as source,
        DetectOutput(folder, detector.names, _output_options(settings)) as output,
    ):
        progress = _Progress(source.total)
        for frames in _groups(source):
            begin = time.perf_counter()
            results = detector.predict_batch([frame.image for frame in frames])
            each_s = (time.perf_counter() - begin) / len(frames)
            for frame, found in zip(frames, results, strict=True):
                progress.report(frame, found, each_s)
                output.write(frame, found)
                summary.objects.update(found.counts())
            summary.frames += len(frames)
            if stop.requested:
                summary.stopped = True
                break
        summary.skipped = source.skipped
    _report(summary, detector, time.perf_counter() - started)
    if summary.frames == 0 and not summary.stopped:
        raise DataError(
            f"none of the {len(summary.skipped)} files could be read (first: {', '.join(summary.skipped[:1])})",
            "at least one picture or video that is not broken",
            "--source PICTURE",
        )
    return summary


def _groups(source: Source) -> Iterator[list[Frame]]:
    """Files are read ahead; live streams always give their newest frame."""
    return iter(source) if source.total is None else read_ahead(source, GROUPS_READ_AHEAD)


def _load_model(settings: DetectSettings) -> DetectionModel:
    """Loads the weights; class names come from --data when the weights have none."""
    model = load_weights(find_weights(settings.weights))
    if settings.data and not model.has_class_names:
        names = load_dataset_config(settings.data, require=()).names
        if len(names) != model.nc:
            raise UserError(
                f"{settings.data} names {len(names)} classes, the weights have {model.nc}",
                "a data.yaml with as many names",
                "leave --data out: classes are shown by number",
            )
        model.names = list(names)
    return model


def _detector_options(settings: DetectSettings) -> DetectorOptions:
    return DetectorOptions(
        imgsz=settings.imgsz,
        conf=settings.conf_thres,
        iou=settings.iou_thres,
        max_det=settings.max_det,
        classes=None if settings.classes is None else tuple(settings.classes),
        agnostic=settings.agnostic_nms,
        single_class=settings.single_cls,
        half=settings.half,
    )


def _output_options(settings: DetectSettings) -> OutputOptions:
    return OutputOptions(
        pictures=not settings.nosave,
        label_files=settings.save_txt,
        scores_in_label_files=settings.save_conf,
        crops=settings.save_crop,
        json_file=settings.save_json,
        line_px=settings.line_thickness,
        show_labels=not settings.hide_labels,
        show_scores=not settings.hide_conf,
    )


class _Progress:
    """A line per picture, and now and then one for frames of videos and streams."""

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._number = 0
        self._origin = ""
        self._last_s = float("-inf")

    def report(self, frame: Frame, found: Detections, seconds: float) -> None:
        """Logs what was found in a picture."""
        if frame.kind == "picture" or frame.origin != self._origin:
            self._number += frame.origin != self._origin
            self._last_s = float("-inf")
        self._origin = frame.origin
        now = time.monotonic()
        if frame.kind != "picture" and now - self._last_s < FRAME_LINE_PERIOD_S:
            return
        self._last_s = now
        height, width = found.size_hw
        words = ", ".join(f"{count} {name}" for name, count in found.counts().items()) or "nothing"
        place = f"{self._place()} {frame.origin}{_frame(frame)}"
        LOG.info("%s %dx%d: %s, %.1f ms", place, width, height, words, seconds * 1e3)

    def _place(self) -> str:
        return f"{self._number}/{self._total}" if self._total is not None else "live"


def _frame(frame: Frame) -> str:
    if frame.kind == "picture":
        return ""
    return f" frame {frame.number}" + (f"/{frame.total}" if frame.total else "")


def _report(summary: DetectSummary, detector: Detector, seconds: float) -> None:
    per_picture = ", ".join(f"{name} {value:.1f}" for name, value in detector.times.milliseconds().items())
    LOG.info(
        "pictures or frames: %d, objects: %d (%s); %.1f s in all, %.1f a second; milliseconds each: %s",
        summary.frames,
        summary.objects.total(),
        ", ".join(f"{count} {name}" for name, count in summary.objects.most_common(10)) or "none",
        seconds,
        summary.frames / max(seconds, 1e-9),
        per_picture,
    )
    if summary.skipped:
        LOG.warning("%d files were left out", len(summary.skipped))
    if summary.stopped:
        LOG.warning("stopped on request; what was written until then is complete")
    LOG.info("results in %s", summary.folder)
