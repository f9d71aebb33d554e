"""Reads frames of video files, cameras and network streams with OpenCV.

The network is used for addresses that the user gave, and for nothing else.
"""

import math
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

import cv2
import numpy as np
from numpy.typing import NDArray

from yolov9.logs import LOG

OPEN_TIMEOUT_MS = 15_000
"""How long a network stream may take to open."""

READ_TIMEOUT_MS = 10_000
"""How long a network stream may stay silent."""

DEFAULT_FPS = 30.0
"""Frames per second of a written video when its source does not say."""

HIGHEST_FPS = 1000.0
"""Above this a container's frame rate is a time base (90 000 and the like), not a rate."""

RECONNECT_WAITS_S = (1.0, 2.0, 4.0)
"""Pauses before a live stream that broke is opened again; after the last one it counts as ended."""


@dataclass(frozen=True)
class Frame:
    """One picture to look at, and where it is from."""

    image: NDArray[np.uint8]
    """(H, W, 3) BGR, upright."""
    origin: str
    """File path or stream address; passwords in addresses are masked."""
    kind: str
    """"picture", "video" or "stream"."""
    number: int = 0
    """Frame number in its video, from 1; 0 for a picture."""
    total: int | None = None
    """Frames of the video where its container says so."""
    fps: float | None = None
    """Frames per second at which these frames play at their natural speed; None for a picture."""


class VideoError(Exception):
    """A video or stream cannot be opened.

    Args:
        origin: file or address.
        reason: what went wrong.
    """

    def __init__(self, origin: str, reason: str) -> None:
        super().__init__(origin, reason)
        self.origin = origin
        self.reason = reason


def read_video(path: str, vid_stride: int = 1) -> Iterator[Frame]:
    """Yields every `vid_stride`-th frame of a video file, the first one included; rotation tags are followed.

    Raises:
        VideoError: it cannot be opened or holds no frame.
    """
    capture = _open(path)
    try:
        total = _frame_count(capture)
        fps = _frame_rate(capture) / vid_stride
        number = 0
        while capture.grab():
            number += 1
            if (number - 1) % vid_stride:
                continue
            ok, image = capture.retrieve()
            if ok and image is not None:
                yield Frame(_three_channels(image), mask_password(path), "video", number, total, fps)
    finally:
        capture.release()
    if number == 0:
        raise VideoError(path, "it holds no frame that can be decoded")
    if total is not None and number < total:
        LOG.warning("%s: ended at frame %d of %d", path, number, total)


def is_finite(address: str) -> bool:
    """Says whether an address plays a file of known length rather than a live stream.

    Raises:
        VideoError: it cannot be opened.
    """
    capture = _open(address)
    try:
        return _frame_count(capture) is not None
    finally:
        capture.release()


def mask_password(address: str) -> str:
    """Replaces the password in `scheme://user:password@host/...` by three stars; other texts come back unchanged."""
    if "://" not in address or "@" not in address:
        return address
    scheme, _, rest = address.partition("://")
    place = re.split("[/?#]", rest)[0]
    user, _, host = place.rpartition("@")
    name, colon, _ = user.partition(":")
    shown = f"{name}{':***' if colon else ''}@{host}" if user else place
    return f"{scheme}://{shown}{rest.removeprefix(place)}"


class LiveStreams:
    """Cameras and network streams, each read by a thread of its own that keeps only the newest frame.

    Iterating gives lists with the new frames of all streams; it ends when every stream has ended. Use as a context
    manager, so that the threads end with it.

    Args:
        addresses: stream addresses or camera numbers.
        vid_stride: use every N-th frame.

    Raises:
        VideoError: one of them cannot be opened.
    """

    def __init__(self, addresses: list[str], vid_stride: int = 1) -> None:
        self.skipped: list[str] = []
        self.total: int | None = None
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._streams: list[_LiveStream] = []
        try:
            for address in addresses:
                stream = _LiveStream(address, vid_stride, self._changed, self._stop)
                self._streams.append(stream)
        except VideoError:
            self.close()
            raise

    def __enter__(self) -> "LiveStreams":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[list[Frame]]:
        for stream in self._streams:
            stream.start()
        while True:
            with self._changed:
                self._changed.wait_for(self._has_news)
                frames = [frame for stream in self._streams if (frame := stream.take()) is not None]
            if not frames:
                return
            yield frames

    def _has_news(self) -> bool:
        return any(stream.newest for stream in self._streams) or all(stream.ended for stream in self._streams)

    def close(self) -> None:
        """Stops the threads and gives the devices back; returns after at most the read timeout."""
        self._stop.set()
        for stream in self._streams:
            stream.close()


class _LiveStream:
    """One live stream and its thread."""

    def __init__(
        self,
        address: str,
        vid_stride: int,
        changed: threading.Condition,
        stop: threading.Event,
    ) -> None:
        self._address, self._vid_stride = address, vid_stride
        self._changed, self._stop = changed, stop
        self._capture = _open(address)
        self.fps = _frame_rate(self._capture) / vid_stride
        self.newest: Frame | None = None
        self.ended = False
        self._number = 0
        self._thread = threading.Thread(target=self._run, name=f"stream {mask_password(address)}", daemon=True)

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def take(self) -> Frame | None:
        """Returns the newest frame once."""
        frame, self.newest = self.newest, None
        return frame

    def close(self) -> None:
        """Waits for the thread and closes the stream."""
        if self._thread.is_alive():
            self._thread.join(READ_TIMEOUT_MS / 1000)
        if not self._thread.is_alive():
            self._capture.release()

    def _run(self) -> None:
        try:
            self._read_all()
            for wait_s in RECONNECT_WAITS_S if self._may_come_back() else ():
                if self._stop.wait(wait_s):
                    break
                LOG.warning("%s: broke off, opening it again", mask_password(self._address))
                self._reopen()
                self._read_all()
        finally:
            with self._changed:
                self.ended = True
                self._changed.notify_all()
            if not self._stop.is_set():
                LOG.info("%s: ended after %d frames", mask_password(self._address), self._number)

    def _read_all(self) -> None:
        while not self._stop.is_set() and self._capture.grab():
            self._number += 1
            if (self._number - 1) % self._vid_stride:
                continue
            ok, image = self._capture.retrieve()
            if ok and image is not None:
                frame = Frame(
                    _three_channels(image), mask_password(self._address), "stream", self._number, None, self.fps
                )
                with self._changed:
                    self.newest = frame
                    self._changed.notify_all()

    def _may_come_back(self) -> bool:
        """A file behind http would start again from its beginning."""
        return not self._address.lower().startswith(("http://", "https://"))

    def _reopen(self) -> None:
        self._capture.release()
        try:
            self._capture = _open(self._address)
        except VideoError as error:
            LOG.warning("%s: %s", mask_password(self._address), error.reason)


def _open(address: str) -> cv2.VideoCapture:
    if address.isdecimal():
        capture = cv2.VideoCapture(int(address))
        reason = f"no camera answers as number {address} (/dev/video{address})"
    elif "://" in address:
        limits = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, OPEN_TIMEOUT_MS, cv2.CAP_PROP_READ_TIMEOUT_MSEC, READ_TIMEOUT_MS]
        capture = cv2.VideoCapture(address, cv2.CAP_FFMPEG, limits)
        reason = f"no video could be read from this address within {OPEN_TIMEOUT_MS // 1000} s"
    else:
        capture = cv2.VideoCapture(address, cv2.CAP_FFMPEG)
        reason = "it is not a video that can be read, or it is broken"
    if not capture.isOpened():
        capture.release()
        raise VideoError(mask_password(address), reason)
    return capture


def _frame_count(capture: cv2.VideoCapture) -> int | None:
    count = capture.get(cv2.CAP_PROP_FRAME_COUNT)
    return int(count) if math.isfinite(count) and count >= 1 else None


def _frame_rate(capture: cv2.VideoCapture) -> float:
    fps = capture.get(cv2.CAP_PROP_FPS)
    return float(fps) if math.isfinite(fps) and 0 < fps <= HIGHEST_FPS else DEFAULT_FPS


def _three_channels(image: "cv2.typing.MatLike") -> NDArray[np.uint8]:
    """Cameras may give grey or BGRA frames."""
    if image.ndim == 2:
        return np.asarray(cv2.cvtColor(image, cv2.COLOR_GRAY2BGR), np.uint8)
    return np.asarray(image[:, :, :3], np.uint8)
