"""Small real videos and pictures for the prediction tests."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

from yolov9.logs import LOG


@pytest.fixture
def make_video() -> Callable[..., Path]:
    """Writes a video whose frame k is grey with value 20 * (k + 1)."""

    def make(path: Path, frames: int = 6, size_wh: tuple[int, int] = (64, 48), fps: float = 12.5) -> Path:
        codec = cv2.VideoWriter.fourcc(*("MJPG" if path.suffix == ".avi" else "mp4v"))
        writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, codec, fps, size_wh)
        assert writer.isOpened()
        for number in range(frames):
            writer.write(np.full((size_wh[1], size_wh[0], 3), 20 * (number + 1), np.uint8))
        writer.release()
        return path

    return make


@pytest.fixture
def make_picture() -> Callable[..., Path]:
    """Writes a picture of one colour; any file name works."""

    def make(path: Path, size_wh: tuple[int, int] = (40, 30), colour: int = 99) -> Path:
        ok, data = cv2.imencode(path.suffix, np.full((size_wh[1], size_wh[0], 3), colour, np.uint8))
        assert ok
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.tobytes())
        return path

    return make


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    """Lines of the program's log during a test."""
    lines: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.levelname} {record.getMessage()}")

    handler, level = Collect(), LOG.level
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    yield lines
    LOG.removeHandler(handler)
    LOG.setLevel(level)
