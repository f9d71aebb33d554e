"""The index of a split: paths, sizes and labels of all pictures as a few flat arrays."""

import json
import os
import zlib
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from yolov9.data.checks import check_any_label, check_class_numbers, check_enough, check_label_files, check_pictures
from yolov9.data.dataset_config import DatasetConfig
from yolov9.data.doubts import doubt_boxes, doubt_classes, doubt_missing_labels
from yolov9.data.flat import join_bytes, join_rows, offsets_of
from yolov9.data.listing import list_pictures
from yolov9.data.scan import ScannedPicture, scan_pictures
from yolov9.data.scan_cache import ScanCache
from yolov9.data.summary import DatasetSummary

SINGLE_CLASS_NAME = "item"
"""Name of the class when all classes are treated as one."""


@dataclass(frozen=True)
class DatasetIndex:
    """One split as flat arrays: no Python object per picture, so its memory does not grow with loader workers."""

    path_bytes: NDArray[np.uint8]
    """All absolute paths, one after the other (`os.fsencode` form)."""
    path_offsets: NDArray[np.int64]
    """(N + 1,) where each path begins."""
    sizes: NDArray[np.int32]
    """(N, 2) upright width and height in pixels."""
    labels: NDArray[np.float32]
    """(M, 5) class, centre x, centre y, width, height; coordinates 0 … 1."""
    label_offsets: NDArray[np.int64]
    """(N + 1,) where the labels of each picture begin."""
    segments: NDArray[np.float32]
    """(P, 2) polygon points, 0 … 1."""
    segment_offsets: NDArray[np.int64]
    """(M + 1,) where the polygon of each label begins; an empty range is a label without polygon."""
    names: tuple[str, ...]
    """Class names."""
    nc: int
    """Number of classes."""
    summary: DatasetSummary = field(default_factory=lambda: DatasetSummary(split="", used=0), compare=False)
    """Counts and problems of the scan."""

    def __len__(self) -> int:
        return len(self.sizes)

    def path(self, number: int) -> str:
        """Returns the absolute path of a picture."""
        start, end = self.path_offsets[number : number + 2]
        return os.fsdecode(self.path_bytes[start:end].tobytes())

    def paths(self) -> set[bytes]:
        """Returns the absolute paths of all pictures, in their `os.fsencode` form."""
        joined = self.path_bytes.tobytes()
        return {joined[start:end] for start, end in pairwise(self.path_offsets.tolist())}

    @cached_property
    def checksum(self) -> int:
        """Checksum of labels and picture sizes in their order; wherever the data set lies, it is the same."""
        value = zlib.crc32(self.sizes.tobytes())
        value = zlib.crc32(self.labels.tobytes(), value)
        return zlib.crc32(self.label_offsets.tobytes(), value)

    def labels_of(self, number: int) -> NDArray[np.float32]:
        """Returns the (n, 5) labels of a picture, a view."""
        start, end = self.label_offsets[number : number + 2]
        return self.labels[start:end]

    def segments_of(self, number: int) -> list[NDArray[np.float32]]:
        """Returns per label of a picture its (k, 2) polygon, a view; k is 0 for a label without polygon."""
        start, end = self.label_offsets[number : number + 2]
        if not len(self.segments):  # most data sets have boxes only
            return [self.segments] * int(end - start)
        places = self.segment_offsets[start : end + 1].tolist()
        return [self.segments[first:last] for first, last in pairwise(places)]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns everything but the summary as arrays, to be placed in shared memory or a file."""
        flat = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in _NOT_ARRAYS}
        names = np.frombuffer(json.dumps(self.names).encode(), np.uint8)
        return {**flat, "names": names, "nc": np.array(self.nc, np.int64)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> "DatasetIndex":
        """Makes an index from the arrays of `arrays()` without copying them."""
        flat: dict[str, Any] = {item.name: arrays[item.name] for item in fields(cls) if item.name not in _NOT_ARRAYS}
        return cls(**flat, names=tuple(json.loads(arrays["names"].tobytes())), nc=int(arrays["nc"]))

    @classmethod
    def build(
        cls,
        config: DatasetConfig,
        split: str,
        *,
        cache_dir: Path | None,
        single_cls: bool = False,
        min_items: int = 0,
        workers: int = 1,
        allow_bad_labels: bool = False,
    ) -> "DatasetIndex":
        """Scans a split.

        Args:
            config: the data set.
            split: "train", "val" or "test".
            cache_dir: where the result of the picture check is kept; None for nowhere.
            single_cls: give every object class 0.
            min_items: leave out pictures with fewer objects than this.
            workers: threads to scan with; what the CPU limit allows.
            allow_bad_labels: go on even when most label files are refused.

        Raises:
            DataError: no pictures, no labels, most label files refused, or class numbers out of range.
        """
        sources = config.sources(split)
        cache = ScanCache(cache_dir, sources)
        known = cache.load()
        paths = list_pictures(sources, config.root)
        scanned = list(scan_pictures(paths, known, workers, config.key_point_columns))
        facts = {picture.path: picture.facts for picture in scanned}
        if facts != known:
            cache.save(facts)
        check_pictures(scanned, sources, split)
        check_label_files(scanned, split, allow=allow_bad_labels)
        used = [picture for picture in scanned if not picture.refused]
        check_any_label(used, sources, split)
        if not single_cls:
            check_class_numbers(used, config)
        enough = [picture for picture in used if len(picture.labels) >= min_items]
        check_enough(used, enough, split, min_items)
        names = (SINGLE_CLASS_NAME,) if single_cls and config.nc != 1 else config.names
        index = cls._assemble(enough, names, single_cls=single_cls)
        summary = _summarise(split, scanned, enough, index, min_items)
        summary.log()
        doubt_missing_labels(used, split)
        doubt_classes(summary)
        doubt_boxes(index.labels, split)
        return replace(index, summary=summary)

    @classmethod
    def _assemble(cls, pictures: list[ScannedPicture], names: tuple[str, ...], *, single_cls: bool) -> "DatasetIndex":
        path_bytes, path_offsets = join_bytes(os.fsencode(picture.path) for picture in pictures)
        segments = [segment for picture in pictures for segment in picture.segments]
        labels = join_rows([picture.labels for picture in pictures], 5)
        if single_cls:
            labels[:, 0] = 0
        sizes = [(picture.facts.width, picture.facts.height) for picture in pictures]
        return cls(
            path_bytes=path_bytes,
            path_offsets=path_offsets,
            sizes=np.array(sizes, np.int32).reshape(-1, 2),
            labels=labels,
            label_offsets=offsets_of([len(picture.labels) for picture in pictures]),
            segments=join_rows(segments, 2),
            segment_offsets=offsets_of([len(segment) for segment in segments]),
            names=names,
            nc=len(names),
        )


_NOT_ARRAYS = frozenset({"names", "nc", "summary"})


def _summarise(
    split: str, scanned: list[ScannedPicture], used: list[ScannedPicture], index: DatasetIndex, min_items: int
) -> DatasetSummary:
    left_out: dict[str, int] = {}
    for picture in scanned:
        if picture.refused:
            left_out[picture.refused] = left_out.get(picture.refused, 0) + 1
    too_few = len(scanned) - len(used) - sum(left_out.values())
    if too_few:
        left_out[f"fewer than {min_items} objects"] = too_few
    boxes = np.bincount(index.labels[:, 0].astype(np.int64), minlength=index.nc)
    return DatasetSummary(
        split=split,
        used=len(used),
        left_out=left_out,
        backgrounds=sum(1 for picture in used if not len(picture.labels)),
        labels_missing=sum(1 for picture in used if not picture.label_file),
        names=index.names,
        boxes_per_class=tuple(boxes.tolist()),
        problems=tuple(problem for picture in scanned for problem in picture.problems),
    )
