"""What a process needs to make samples, and how it gets from one process to another: shared memory and plain values."""

import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from yolov9.data.cache import CacheLayout, DecodedCache
from yolov9.data.cache_memory import open_cache
from yolov9.data.compiled import share_library
from yolov9.data.compiled_brush import load_brush
from yolov9.data.drawing import DrawingWriter
from yolov9.data.index import DatasetIndex
from yolov9.data.loader_settings import LoaderPlan, LoaderSettings
from yolov9.data.reader import PictureReader
from yolov9.data.ring import Ring, RingLayout
from yolov9.data.sample import Sample, SampleMaker, SampleSettings
from yolov9.data.shared import create_memory, map_arrays, map_memory, share_arrays
from yolov9.data.window import Window, WindowLayout, empty_heads
from yolov9.data.worker import MAX_WORKERS, NOTHING, MakeSample, Task


class SharedParts:
    """Everything that the processes of a loader share, in shared memory.

    Args:
        config: descriptors and layouts, as `create` makes them.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.index = DatasetIndex.from_arrays(map_arrays(*config["index"]))
        board = map_arrays(*config["board"], writable=True)
        self.reading: NDArray[np.int64] = board["reading"]
        """(MAX_WORKERS,) the picture that each worker is reading."""
        self.banned: NDArray[np.uint8] = board["banned"]
        """(N,) pictures that are not to be opened any more."""
        self.ring = Ring(RingLayout(**config["ring"][1]), config["ring"][0])
        self._settings = SampleSettings(**config["sample"])
        self._order = board["order"] if len(board["order"]) else None
        self._cache = _map_cache(config["cache"], board["cache_offsets"], self.index)
        self._window = _map_window(config["window"], board["window_heads"])
        self._brush = load_brush(config["library"])

    @classmethod
    def create(cls, settings: LoaderSettings, plan: LoaderPlan, ring_fd: int) -> Self:
        """Makes the shared memory for a loader."""
        cache = open_cache(settings)
        board: dict[str, NDArray[Any]] = {
            "reading": np.full(MAX_WORKERS, NOTHING, np.int64),
            "banned": np.zeros(len(settings.index), np.uint8),
            "order": np.zeros(0, np.int64) if plan.order is None else plan.order,
            "cache_offsets": np.zeros(0, np.int64) if cache is None else cache.offsets,
            "window_heads": np.zeros((0, 3), np.int64) if plan.window is None else empty_heads(plan.window),
        }
        window = None
        if plan.window is not None:
            window = create_memory("yolov9-window", plan.window.total_bytes), list(plan.window)
        return cls(
            {
                "index": share_arrays("yolov9-index", settings.index.arrays()),
                "board": share_arrays("yolov9-board", board),
                "ring": (ring_fd, asdict(plan.ring)),
                "sample": asdict(plan.sample),
                "cache": None if cache is None else (cache.fd, asdict(cache.layout)),
                "window": window,
                "library": share_library(settings.cache_dir) if _draws(settings, plan) else None,
                "drawings": settings.draw_on_device,
            }
        )

    def descriptors(self) -> list[int]:
        """Returns the file descriptors that another process must get to use the configuration."""
        named = (self.config[name] for name in ("index", "board", "ring", "cache", "window"))
        library = self.config["library"]
        return [part[0] for part in named if part is not None] + ([] if library is None else [library])

    def close_descriptors(self) -> None:
        """Closes them, but for the ring's, in this process; what is mapped stays."""
        for fd in set(self.descriptors()) - {self.config["ring"][0]}:
            os.close(fd)

    def maker(self, reading: Callable[[int], None] | None = None) -> MakeSample:
        """Returns a function that makes samples in the ring.

        Args:
            reading: called with the number of each picture before it is opened.
        """
        reader = PictureReader(
            self.index,
            self._settings.imgsz,
            cache=self._cache,
            window=self._window,
            reading=reading,
            banned=self.banned,
            brush=self._brush,
        )
        maker = SampleMaker(self._settings, self.index, reader, self._order, self._brush)

        def make(task: Task) -> Sample:
            out = self.ring.picture(task.slot, task.row, task.height, task.width)
            return maker.make(task.epoch, task.position, out)

        writer = DrawingWriter(reader, self._settings.imgsz)

        def describe(task: Task) -> Sample:
            write = writer.into(self.ring.room(task.slot, task.row))
            return maker.describe(task.epoch, task.position, (task.height, task.width), write)

        return describe if self.config["drawings"] else make


def _draws(settings: LoaderSettings, plan: LoaderPlan) -> bool:
    """Tells whether the workers draw."""
    return plan.sample.augment and not settings.draw_on_device


def _map_cache(
    config: tuple[int, dict[str, Any]] | None, offsets: NDArray[np.int64], index: DatasetIndex
) -> DecodedCache | None:
    if config is None:
        return None
    fd, layout = config
    return DecodedCache(CacheLayout(**layout), np.frombuffer(map_memory(fd), np.uint8), offsets, index.sizes)


def _map_window(config: tuple[int, list[int]] | None, heads: NDArray[np.int64]) -> Window | None:
    if config is None:
        return None
    fd, layout = config
    return Window(WindowLayout(*layout), np.frombuffer(map_memory(fd), np.uint8), heads)
