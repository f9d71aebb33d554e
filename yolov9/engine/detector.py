"""Finds objects in pictures held in memory: the part of `detect` that can be used from Python.

detector = Detector("runs/train/exp/weights/best.pt", device="0")
found = detector.predict(cv2.imread("street.jpg"))
for name, score, box in zip(found.class_names, found.scores, found.boxes): ...
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yolov9.config.picture_size import fitting_size
from yolov9.data.index import SINGLE_CLASS_NAME
from yolov9.data.letterbox import LetterboxPlan, letterbox
from yolov9.engine.device_batch import to_unit_range
from yolov9.engine.parts_that_fit import PartsThatFit
from yolov9.engine.precision import resolve_device
from yolov9.errors import UserError
from yolov9.logs import LOG
from yolov9.model import DetectionModel, for_inference, load_weights
from yolov9.ops import nms
from yolov9.ops.plain import plain_operations


@dataclass(frozen=True, kw_only=True)
class DetectorOptions:
    """How objects are looked for."""

    imgsz: int = 640
    """Longer side of the picture that the network sees, in pixels."""
    conf: float = 0.25
    """Smallest confidence."""
    iou: float = 0.45
    """Overlap above which the weaker box is dropped."""
    max_det: int = 1000
    """Most detections per picture."""
    classes: tuple[int, ...] | None = None
    """Class numbers to keep; None keeps all."""
    agnostic: bool = False
    """Boxes of different classes suppress each other too."""
    single_class: bool = False
    """Report every object as class 0, named `SINGLE_CLASS_NAME`; boxes of all classes suppress each other."""
    half: bool = False
    """Compute in fp16; on a GPU only."""


@dataclass(frozen=True)
class Detections:
    """Objects found in one picture, the most certain first."""

    boxes: NDArray[np.float32]
    """(n, 4) x1, y1, x2, y2 in pixels of the picture that was given, inside it."""
    scores: NDArray[np.float32]
    """(n,) confidences from 0 to 1."""
    classes: NDArray[np.int64]
    """(n,) class numbers."""
    names: tuple[str, ...]
    """Names of all classes of the model."""
    size_hw: tuple[int, int]
    """Height and width of the picture."""

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def class_names(self) -> list[str]:
        """The class name of each object."""
        return [self.names[number] for number in self.classes]

    def counts(self) -> dict[str, int]:
        """Number of objects per class name, by class number."""
        numbers, counts = np.unique(self.classes, return_counts=True)
        return {self.names[number]: int(count) for number, count in zip(numbers, counts, strict=True)}

    def rows(self) -> NDArray[np.float32]:
        """(n, 6) x1, y1, x2, y2, score, class."""
        return np.concatenate([self.boxes, self.scores[:, None], self.classes[:, None]], 1, dtype=np.float32)


@dataclass
class StageTimes:
    """Seconds spent so far, and the pictures they were spent on."""

    pictures: int = 0
    prepare_s: float = 0.0
    """Resizing, padding and the way to the device."""
    model_s: float = 0.0
    select_s: float = 0.0
    """Non-maximum suppression and scaling back."""

    def milliseconds(self) -> dict[str, float]:
        """Mean milliseconds a picture of each stage."""
        count = max(self.pictures, 1) / 1000
        return {"prepare": self.prepare_s / count, "model": self.model_s / count, "select": self.select_s / count}


class Detector:
    """A model that is ready to look at pictures.

    Args:
        weights: a checkpoint, or a model that is in memory already; it is copied, folded for inference.
        device: "" (a GPU, or else the CPU), "cpu", "0" …
        options: how objects are looked for; None: as `DetectorOptions` has them.

    Raises:
        UserError: no such weights or device, or a class number that the model does not have.
    """

    def __init__(
        self, weights: str | Path | DetectionModel, device: str = "", options: DetectorOptions | None = None
    ) -> None:
        self.options = options or DetectorOptions()
        self._device = resolve_device(device)
        model = weights if isinstance(weights, DetectionModel) else load_weights(weights)
        self.names = (SINGLE_CLASS_NAME,) if self.options.single_class else tuple(model.names)
        self.stride = int(model.stride.max())
        self.times = StageTimes()
        self._parts = PartsThatFit(self._device, "detection")
        self._imgsz = fitting_size(self.options.imgsz, self.stride)
        _check_classes(self.options.classes, model.names)
        self._dtype = torch.float16 if self.options.half and self._device.type == "cuda" else torch.float32
        if self.options.half and self._device.type == "cpu":
            LOG.warning("--half: the CPU computes in float32; going on without it")
        self._model = for_inference(model, self._device, self._dtype)

    def predict(self, image: NDArray[np.uint8]) -> Detections:
        """Finds the objects in one picture: (H, W, 3), BGR, upright."""
        return self.predict_batch([image])[0]

    def predict_batch(self, images: Sequence[NDArray[np.uint8]]) -> list[Detections]:
        """Finds the objects in several pictures of any sizes.

        Pictures whose letterbox has the same shape are computed together, so that no result depends on its neighbours.

        Args:
            images: each (H, W, 3), uint8, BGR, upright.

        Returns:
            One result per picture, in the same order.
        """
        started = time.perf_counter()
        fitted = [letterbox(image, self._imgsz, auto=True, stride=self.stride) for image in images]
        groups: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index, (_, plan) in enumerate(fitted):
            groups[plan.out_hw].append(index)
        self.times.prepare_s += time.perf_counter() - started
        found: dict[int, Detections] = {}
        for indices in groups.values():
            rows = self._run_in_parts([fitted[index][0] for index in indices])
            started = time.perf_counter()
            for index, row in zip(indices, rows, strict=True):
                found[index] = self._in_picture(row, fitted[index][1], images[index].shape[:2])
            self.times.select_s += time.perf_counter() - started
        self.times.pictures += len(images)
        return [found[index] for index in range(len(images))]

    def _run_in_parts(self, fitted: list[NDArray[np.uint8]]) -> list[NDArray[np.float32]]:
        parts = self._parts(lambda part: self._run(fitted[part]), len(fitted))
        return [rows for part in parts for rows in part]

    @torch.inference_mode()
    def _run(self, fitted: list[NDArray[np.uint8]]) -> list[NDArray[np.float32]]:
        """Network and selection for pictures of one shape; rows x1, y1, x2, y2, score, class in network pixels."""
        t0 = time.perf_counter()
        pixels = torch.from_numpy(np.stack(fitted)[:, :, :, ::-1].copy()).to(self._device)
        batch = to_unit_range(pixels, self._dtype)
        t1 = self._now()
        with plain_operations():  # Kernels of our own take seconds to compile, which detection does not win back.
            prediction = self._model(batch)
        t2 = self._now()
        rows = self._select(prediction)
        self.times.prepare_s += t1 - t0
        self.times.model_s += t2 - t1
        self.times.select_s += time.perf_counter() - t2
        return rows

    def _select(self, prediction: Tensor) -> list[NDArray[np.float32]]:
        options = self.options
        agnostic = options.agnostic or options.single_class
        kept = nms(prediction, options.conf, options.iou, options.classes, agnostic, max_det=options.max_det)
        return [rows.cpu().numpy() for rows in kept]

    def _in_picture(self, rows: NDArray[np.float32], plan: LetterboxPlan, size_hw: Sequence[int]) -> Detections:
        """Undoes the letterbox with the border that was really added (whole pixels), and clips to the picture."""
        height, width = size_hw
        scale = np.array([width / plan.content_hw[1], height / plan.content_hw[0]] * 2)
        boxes = (rows[:, :4] - np.array([plan.left, plan.top] * 2)) * scale
        boxes = np.clip(boxes, 0, [width, height, width, height]).astype(np.float32)
        classes = rows[:, 5].astype(np.int64) * (not self.options.single_class)
        return Detections(boxes, rows[:, 4].copy(), classes, self.names, (height, width))

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


def _check_classes(classes: Sequence[int] | None, names: Sequence[str]) -> None:
    for number in classes or ():
        if not 0 <= number < len(names):
            known = ", ".join(f"{index} {name}" for index, name in enumerate(names[:10]))
            raise UserError(
                f"--classes {number}, and the model has the classes 0 to {len(names) - 1}",
                f"class numbers of the model ({known}{', …' if len(names) > 10 else ''})",
                "--classes 0",
            )


def as_objects(detections: Detections, origin: str, frame: int | None = None) -> list[dict[str, Any]]:
    """Returns detections as plain objects for JSON: image, class id, name, confidence, box in pixels."""
    place: dict[str, Any] = {"image": origin} if frame is None else {"image": origin, "frame": frame}
    return [
        {
            **place,
            "class_id": int(number),
            "name": detections.names[number],
            "confidence": round(float(score), 5),
            "box_xyxy": [round(float(value), 2) for value in box],
        }
        for box, score, number in zip(detections.boxes, detections.scores, detections.classes, strict=True)
    ]
