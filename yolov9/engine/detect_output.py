"""Files that `detect` writes: annotated pictures and videos, label files, crops, one JSON file."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

import cv2
import numpy as np
from numpy.typing import NDArray

from yolov9.data.video import Frame
from yolov9.engine.detector import Detections, as_objects
from yolov9.engine.draw import draw_boxes
from yolov9.engine.file_names import UniqueNames, safe_name
from yolov9.engine.fonts import readable_names
from yolov9.engine.label_rows import label_text
from yolov9.engine.result_folder import not_writable
from yolov9.logs import LOG

WRITABLE_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
"""Pictures keep their format when it is one of these; others are written as JPEG."""

VIDEO_CODECS = ((".mp4", "mp4v"), (".avi", "MJPG"))
"""Container and codec of written videos, tried in this order; both are part of every OpenCV build with FFmpeg."""

JPEG_QUALITY = 95


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """What is written."""

    pictures: bool = True
    """Annotated pictures and videos."""
    label_files: bool = False
    scores_in_label_files: bool = False
    crops: bool = False
    json_file: bool = False
    line_px: int | None = None
    """Width of box lines in pixels; None fits it to the picture."""
    show_labels: bool = True
    """Write the class name at each box."""
    show_scores: bool = True
    """Write the confidence after the class name."""


class DetectOutput:
    """Writes the results of a run; a context manager, so that videos and the JSON file end properly.

    Args:
        folder: run folder; exists.
        names: class names.
        options: what to write.
    """

    def __init__(self, folder: Path, names: tuple[str, ...], options: OutputOptions) -> None:
        self.folder = folder
        self._options = options
        self._shown = readable_names(names)
        self._folders = [safe_name(name) for name in names]
        self._files = UniqueNames()
        self._videos: dict[str, VideoFile] = {}
        self._json: IO[str] | None = None
        self._json_rows = 0

    def __enter__(self) -> "DetectOutput":
        for wanted, name in ((self._options.label_files, "labels"), (self._options.crops, "crops")):
            if wanted:
                (self.folder / name).mkdir(exist_ok=True)
        if self._options.json_file:
            self._json = (self.folder / "predictions.json").open("w", encoding="utf-8")
            self._json.write("[")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for video in self._videos.values():
            video.close()
        if self._json is not None:
            self._json.write("\n]\n")
            self._json.close()

    def write(self, frame: Frame, found: Detections) -> None:
        """Writes everything about one picture or frame; the picture is drawn on.

        Raises:
            UserError: the disk is full or the folder cannot be written.
        """
        name = self._files.name(frame.origin)
        labelled = name if frame.kind == "picture" else f"{name}_{frame.number}"
        try:
            if self._options.label_files:
                text = label_text(found.rows(), found.size_hw, with_scores=self._options.scores_in_label_files)
                (self.folder / "labels" / f"{labelled}.txt").write_text(text, encoding="ascii")
            if self._json is not None:
                self._write_objects(frame, found)
            if self._options.crops:
                self._write_crops(frame.image, found, labelled)
            if self._options.pictures:
                self._write_picture(frame, found, name)
        except OSError as error:
            raise not_writable(self.folder, error) from error

    def _write_objects(self, frame: Frame, found: Detections) -> None:
        assert self._json is not None
        number = None if frame.kind == "picture" else frame.number
        for row in as_objects(found, frame.origin, number):
            self._json.write((",\n" if self._json_rows else "\n") + json.dumps(row))
            self._json_rows += 1

    def _write_crops(self, image: NDArray[np.uint8], found: Detections, name: str) -> None:
        """One file per object: crops/CLASS/PICTURE_NUMBER.jpg, the box rounded outwards."""
        height, width = image.shape[:2]
        for order, (box, number) in enumerate(zip(found.boxes, found.classes, strict=True), 1):
            x1, y1 = max(0, math.floor(box[0])), max(0, math.floor(box[1]))
            x2, y2 = min(width, math.ceil(box[2])), min(height, math.ceil(box[3]))
            if x2 > x1 and y2 > y1:
                folder = self.folder / "crops" / self._folders[number]
                folder.mkdir(exist_ok=True)
                write_picture(folder / f"{name}_{order}.jpg", image[y1:y2, x1:x2])

    def _write_picture(self, frame: Frame, found: Detections, name: str) -> None:
        labels = [self._label(number, score) for number, score in zip(found.classes, found.scores, strict=True)]
        image = np.ascontiguousarray(frame.image)
        draw_boxes(image, found.boxes, found.classes, labels, line_px=self._options.line_px)
        if frame.kind == "picture":
            suffix = Path(frame.origin).suffix
            write_picture(self.folder / (name + (suffix if suffix.lower() in WRITABLE_SUFFIXES else ".jpg")), image)
            return
        if frame.origin not in self._videos:
            self._close_finished_videos(frame.kind)
            self._videos[frame.origin] = VideoFile(self.folder, name, frame.fps, image.shape[:2])
        self._videos[frame.origin].add(image)

    def _close_finished_videos(self, kind: str) -> None:
        """Files come one after the other, streams side by side."""
        if kind == "video":
            for video in self._videos.values():
                video.close()
            self._videos.clear()

    def _label(self, number: np.int64, score: np.float32) -> str:
        if not self._options.show_labels:
            return ""
        return f"{self._shown[number]} {score:.2f}" if self._options.show_scores else self._shown[number]


class VideoFile:
    """A video that is being written.

    Args:
        folder: where it goes.
        name: file name without suffix.
        fps: frames per second.
        size_hw: height and width of all frames; other sizes are resized. Codecs need even sides: a frame with an odd
            one gets its last row or column twice.

    Raises:
        OSError: no codec can write it.
    """

    def __init__(self, folder: Path, name: str, fps: float | None, size_hw: tuple[int, ...]) -> None:
        self._size_wh = (size_hw[1], size_hw[0])
        even_wh = (size_hw[1] + size_hw[1] % 2, size_hw[0] + size_hw[0] % 2)
        self._writer: cv2.VideoWriter | None = None
        for suffix, codec in VIDEO_CODECS:
            self.path = folder / f"{name}{suffix}"
            code = cv2.VideoWriter.fourcc(*codec)
            writer = cv2.VideoWriter(str(self.path), cv2.CAP_FFMPEG, code, fps or 1.0, even_wh)
            if writer.isOpened():
                self._writer = writer
                return
        raise OSError(None, f"no video codec of OpenCV can write {self.path}")

    def add(self, image: NDArray[np.uint8]) -> None:
        """Appends a frame, (H, W, 3) BGR."""
        assert self._writer is not None, "the video is closed"
        if (image.shape[1], image.shape[0]) != self._size_wh:
            image = np.asarray(cv2.resize(image, self._size_wh), np.uint8)
        width, height = self._size_wh
        if width % 2 or height % 2:
            image = np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        self._writer.write(image)

    def close(self) -> None:
        """Finishes the file; again is harmless."""
        if self._writer is not None:
            self._writer.release()
            self._writer = None
            LOG.info("wrote %s", self.path)


def write_picture(path: Path, image: NDArray[np.uint8]) -> None:
    """Writes a picture (H, W, 3) BGR in the format of the suffix; any file name works, whatever the locale.

    Raises:
        OSError: it cannot be encoded or written.
    """
    quality = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY] if path.suffix.lower() in {".jpg", ".jpeg"} else []
    ok, data = cv2.imencode(path.suffix.lower(), np.ascontiguousarray(image), quality)
    if not ok:
        raise OSError(None, f"cannot encode {path.name}")
    path.write_bytes(data.tobytes())
