"""Turns the text of `--source` into pictures: files, folders, globs, list files, videos, cameras and streams.

The order in which a text is understood:

1. An empty text: a sample picture of our own, from the embedded data set.
2. A whole number: a camera.
3. `scheme://...` with a scheme of `STREAM_SCHEMES`: a network stream, or a video or picture behind http.
4. A folder: its pictures and videos, by name; sub-folders and hidden files are left out.
5. A `.streams` or `.txt` file: one source per line. When all lines are cameras or streams they run side by side.
6. Any other file that exists: a picture or a video. A name with brackets or stars that exists is that file.
7. A text with `*`, `?` or `[`: all files that match; `**` goes into sub-folders.
"""

import difflib
import glob
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from yolov9.data.dataset_config import load_dataset_config
from yolov9.data.fetch import fetch_picture, is_picture_address
from yolov9.data.image_check import is_cut_off
from yolov9.data.images import ImageError, read_image
from yolov9.data.listing import IMAGE_SUFFIXES, list_pictures, unquoted
from yolov9.data.video import Frame, LiveStreams, VideoError, is_finite, mask_password, read_video
from yolov9.decode_text import decode_text
from yolov9.errors import DataError, UserError
from yolov9.logs import LOG
from yolov9.read_watch import reading

EITHER_SUFFIXES = frozenset({".gif"})
"""A still or an animation: the number of frames decides."""

PICTURE_SUFFIXES = IMAGE_SUFFIXES - EITHER_SUFFIXES
VIDEO_SUFFIXES = frozenset(
    {".asf", ".avi", ".flv", ".m4v", ".mjpeg", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ts", ".webm", ".wmv"}
)
LIST_SUFFIXES = frozenset({".txt", ".streams"})
STREAM_SCHEMES = ("rtsp://", "rtsps://", "rtmp://", "http://", "https://", "tcp://", "udp://", "rtp://", "srt://")

WHAT_A_SOURCE_IS = (
    "a picture, a folder, a glob in quotes, a video, a .txt list, a .streams file, a camera number or a stream address"
)
SAMPLE_REMEDY = "--source PICTURE; without --source a sample picture of our own is used"


class Source(Protocol):
    """Something to look at."""

    skipped: list[str]
    """Files that could not be read, as `path: reason`; complete after the iteration."""
    total: int | None
    """Number of files; None for live streams."""

    def __iter__(self) -> Iterator[list[Frame]]:
        """Yields groups of frames that may be looked at together."""


def open_source(text: str, *, vid_stride: int = 1, group: int = 1) -> AbstractContextManager[Source]:
    """Finds out what a source is and opens it.

    Args:
        text: value of `--source`; it is never given to a shell.
        vid_stride: use every N-th frame of videos and streams.
        group: most frames per group for files; live streams give one frame per stream.

    Returns:
        A context manager around the source.

    Raises:
        UserError: there is nothing of that name, or nothing in it to look at; says what was tried.
    """
    if vid_stride < 1:
        raise UserError(f"--vid-stride {vid_stride}", "a whole number from 1 on", "--vid-stride 1")
    if not text.strip():
        return nullcontext(FileSource([_sample_picture()], vid_stride, group))
    if is_picture_address(text):
        return nullcontext(FileSource([text], vid_stride, group))
    if is_live(text):
        return _open_addresses([text], vid_stride, group)
    path = Path(text).expanduser()
    if path.is_file() and path.suffix.lower() in LIST_SUFFIXES:
        lines = _list_lines(path)
        if all(is_live(line) for line in lines):
            return _open_addresses(lines, vid_stride, group)
        return nullcontext(FileSource(_listed_files(path, lines), vid_stride, group))
    return nullcontext(FileSource(_find_files(text), vid_stride, group))


def is_live(text: str) -> bool:
    """Says whether a text names a camera or a network address."""
    return text.isdecimal() or text.lower().startswith(STREAM_SCHEMES)


class FileSource:
    """Pictures and videos from files, in the order given. A broken file is reported and left out.

    Args:
        files: paths (or http addresses of videos); suffixes tell pictures from videos.
        vid_stride: use every N-th frame of videos.
        group: most frames per group.
    """

    def __init__(self, files: list[str], vid_stride: int = 1, group: int = 1) -> None:
        self.files = files
        self.skipped: list[str] = []
        self.total: int | None = len(files)
        self._vid_stride = vid_stride
        self._group = group

    def __iter__(self) -> Iterator[list[Frame]]:
        """Yields groups of up to `group` frames."""
        waiting: list[Frame] = []
        for frame in self._frames():
            waiting.append(frame)
            if len(waiting) == self._group:
                yield waiting
                waiting = []
        if waiting:
            yield waiting

    def _frames(self) -> Iterator[Frame]:
        for path in self.files:
            try:
                if is_picture_address(path):
                    yield Frame(fetch_picture(path), mask_password(path), "picture")
                elif _is_video(path):
                    yield from read_video(path, self._vid_stride)
                else:
                    with reading(path):
                        picture = read_image(path)
                        cut_off = is_cut_off(path)
                    if cut_off:
                        LOG.warning("%s: cut off, so only a part of the picture can be looked at", path)
                    yield Frame(picture, path, "picture")
            except (ImageError, VideoError) as error:
                self.skipped.append(f"{mask_password(path)}: {error.reason}")
                LOG.warning("left out %s: %s", mask_password(path), error.reason)


def _open_addresses(addresses: list[str], vid_stride: int, group: int) -> AbstractContextManager[Source]:
    try:
        if len(addresses) == 1 and not addresses[0].isdecimal() and is_finite(addresses[0]):
            return nullcontext(FileSource(addresses, vid_stride, group))
        return LiveStreams(addresses, vid_stride)
    except VideoError as error:
        raise UserError(
            f"{error.origin}: {error.reason}",
            "a camera that this machine (or container) may use, or an address that answers",
            "docker run --device /dev/video0 ... for a camera; " + SAMPLE_REMEDY,
        ) from error


def _find_files(text: str) -> list[str]:
    path = Path(text).expanduser()
    if path.is_dir():
        return _files_of_folder(path)
    if path.exists():
        return [str(path)]
    if glob.has_magic(text):
        # Path.glob does not take absolute patterns.
        found = glob.glob(str(path), recursive=True)  # noqa: PTH207
        matches = [name for name in sorted(found) if _is_usable(name)]
        if matches:
            return matches
        raise UserError(
            f"no picture or video matches {text!r} in {Path.cwd()}", WHAT_A_SOURCE_IS, "ls the folder; " + SAMPLE_REMEDY
        )
    raise _missing(text)


def _missing(text: str) -> UserError:
    path = Path(text).expanduser().absolute()
    if not path.parent.is_dir():
        detail = f"the folder {path.parent} does not exist"
    else:
        near = difflib.get_close_matches(path.name, sorted(entry.name for entry in path.parent.iterdir()), n=3)
        detail = f"tried {path}" + (f"; its folder has {', '.join(near)}" if near else "")
    return UserError(f"the source {text!r} does not exist: {detail}", WHAT_A_SOURCE_IS, SAMPLE_REMEDY)


def _files_of_folder(folder: Path) -> list[str]:
    entries = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    usable = [str(path) for path in entries if _is_usable(str(path))]
    if not usable:
        deeper = next((path for path in folder.rglob("*") if _is_usable(str(path)) and path.is_file()), None)
        hint = f"--source '{folder}/**/*{deeper.suffix}'" if deeper else SAMPLE_REMEDY
        raise UserError(
            f"the folder {folder} holds no picture or video itself ({len(entries)} other files)",
            "files that end in " + " ".join(sorted(PICTURE_SUFFIXES | VIDEO_SUFFIXES)),
            hint,
        )
    if len(usable) < len(entries):
        LOG.info("%s: %d files are neither pictures nor videos by name", folder, len(entries) - len(usable))
    return usable


def _list_lines(path: Path) -> list[str]:
    text = decode_text(path.read_bytes(), "surrogateescape")
    lines = [unquoted(line) for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        raise UserError(f"the list {path} is empty", "one source per line", f"echo PICTURE >> {path}")
    return lines


def _listed_files(path: Path, lines: list[str]) -> list[str]:
    """Files named in a list: relative to the list first, then to the working folder."""
    live = [line for line in lines if is_live(line)]
    if live:
        raise UserError(
            f"the list {path} mixes files with {mask_password(live[0])}",
            "files only, or cameras and streams only",
            "two lists, one run each",
        )
    files: list[str] = []
    for line in lines:
        place = next((p for p in (path.parent / line, Path(line)) if p.exists()), None)
        if place is None:
            LOG.warning("left out %s: named in %s but does not exist", line, path)
        elif place.is_dir():
            files += _files_of_folder(place)
        else:
            files.append(str(place))
    if not files:
        raise DataError(
            f"none of the {len(lines)} files named in {path} exists (first: {lines[0]})",
            f"paths relative to {path.parent.absolute()} or to {Path.cwd()}",
            "correct the list; " + SAMPLE_REMEDY,
        )
    return files


def _sample_picture() -> str:
    """First validation picture of the embedded data set, which is drawn on first use."""
    config = load_dataset_config("", require=("val",))
    path = os.fsdecode(list_pictures(config.sources("val"), config.root)[0])
    LOG.info("no --source: looking at a sample picture of our own, %s", path)
    return path


def _suffix(name: str) -> str:
    return Path(name).suffix.lower()


def _is_usable(name: str) -> bool:
    return _suffix(name) in PICTURE_SUFFIXES | VIDEO_SUFFIXES | EITHER_SUFFIXES


def _is_video(name: str) -> bool:
    """Says whether a file is read as a video; one whose suffix is unknown is, when it has several frames."""
    suffix = _suffix(name)
    if suffix in VIDEO_SUFFIXES or "://" in name:
        return True
    if suffix in PICTURE_SUFFIXES:
        return False
    return _has_several_frames(name)


def _has_several_frames(name: str) -> bool:
    try:
        return len(list(zip(range(2), read_video(name), strict=False))) > 1
    except VideoError:
        return False
