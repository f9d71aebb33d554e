"""Opens the memory behind a decoded cache: anonymous, or a file that later runs and other jobs use too."""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from yolov9.data.cache import HEADER_BYTES, CacheLayout, plan_cache
from yolov9.data.index import DatasetIndex
from yolov9.data.loader_settings import LoaderSettings
from yolov9.data.shared import create_memory
from yolov9.logs import LOG

FORMAT = "yolov9-decoded-1"
"""Goes up when the content of cache files changes its meaning."""
DISK_RESERVE_BYTES = 1 << 30
"""Space that a disk cache leaves on its file system for checkpoints and results."""


@dataclass(frozen=True)
class CacheMemory:
    """An open cache, to be mapped by this process or by workers."""

    fd: int
    layout: CacheLayout
    offsets: NDArray[np.int64]
    """(kept + 1,) first byte of each picture."""


def open_cache(settings: LoaderSettings) -> CacheMemory | None:
    """Opens the cache that the settings ask for; None when there is none, or none can be had (the log says why)."""
    if settings.cache == "off":
        return None
    try:
        memory = _open_disk(settings) if settings.cache == "disk" else _open_ram(settings)
    except OSError as error:
        LOG.warning("decoded cache off: %s", error)
        return None
    if memory is not None:
        _say(settings, memory.layout)
    return memory


def _open_ram(settings: LoaderSettings) -> CacheMemory:
    layout, offsets = plan_cache(settings.index.sizes, settings.imgsz, settings.cache_limit_bytes)
    return CacheMemory(create_memory("yolov9-cache", layout.total_bytes), layout, offsets)


def _open_disk(settings: LoaderSettings) -> CacheMemory | None:
    if settings.cache_dir is None:
        LOG.warning("decoded cache off: there is no folder for it; set YOLOV9_CACHE_DIR to a writable one")
        return None
    settings.cache_dir.mkdir(parents=True, exist_ok=True)
    paths = hashlib.sha256(settings.index.path_bytes.tobytes()).hexdigest()[:16]
    path = settings.cache_dir / f"decoded-{paths}-{settings.imgsz}.cache"
    content = content_key(settings.index)
    found = _reuse(path, settings, content)
    return found if found is not None else _create(path, settings, content)


def content_key(index: DatasetIndex) -> str:
    """Returns a hash of the paths, sizes in pixels, sizes in bytes and modification times of all pictures."""
    digest = hashlib.sha256(index.path_bytes.tobytes() + index.sizes.tobytes())
    for number in range(len(index)):
        try:
            status = Path(index.path(number)).stat()
            digest.update(f"{status.st_size} {status.st_mtime_ns} ".encode())
        except OSError:
            digest.update(b"absent ")
    return digest.hexdigest()


def _reuse(path: Path, settings: LoaderSettings, content: str) -> CacheMemory | None:
    """Opens an existing file when its header and its length are what they should be."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        header = json.loads(os.pread(fd, HEADER_BYTES, 0).rstrip(b"\0"))
        layout, offsets = plan_cache(settings.index.sizes, settings.imgsz, header["layout"]["total_bytes"])
        if header == _header(layout, content) and os.fstat(fd).st_size == layout.total_bytes:
            return CacheMemory(fd, layout, offsets)
        reason = "its content or length does not fit"
    except (ValueError, KeyError, TypeError):
        reason = "its header cannot be read"
    os.close(fd)
    LOG.info("decoded cache %s is made anew: %s", path, reason)
    return None


def _create(path: Path, settings: LoaderSettings, content: str) -> CacheMemory | None:
    """Makes a file with all its space reserved: a full disk shows here, not as a bus error in a worker."""
    status = os.statvfs(path.parent)
    limit = max(status.f_bavail * status.f_frsize - DISK_RESERVE_BYTES, 0)
    if settings.cache_limit_bytes is not None:
        limit = min(limit, settings.cache_limit_bytes)
    layout, offsets = plan_cache(settings.index.sizes, settings.imgsz, limit)
    if not layout.kept:
        LOG.warning("decoded cache off: %s has no room", path.parent)
        return None
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(fd, 0, layout.total_bytes)
        os.pwrite(fd, json.dumps(_header(layout, content)).encode(), 0)
        temporary.replace(path)
    except OSError:
        os.close(fd)
        temporary.unlink(missing_ok=True)
        raise
    return CacheMemory(fd, layout, offsets)


def _header(layout: CacheLayout, content: str) -> dict[str, Any]:
    return {"format": FORMAT, "content": content, "layout": asdict(layout)}


def _say(settings: LoaderSettings, layout: CacheLayout) -> None:
    count, size = len(settings.index), layout.total_bytes / 1e9
    LOG.info("decoded cache (%s): place for %d of %d pictures, %.2f GB", settings.cache, layout.kept, count, size)
