"""Shared by the unit tests: machines on paper, and data sets with many pictures."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from yolov9.data import DatasetIndex

MakeTree = Callable[..., Path]


@pytest.fixture
def make_tree(tmp_path: Path) -> MakeTree:
    """Writes files of a machine into a folder: `make_tree({"proc/meminfo": "…"}, {"affinity": 4})`."""

    def make(files: Mapping[str, str], given: Mapping[str, Any] | None = None) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if given is not None:
            (tmp_path / "facts.json").write_text(json.dumps(given))
        return tmp_path

    return make


@pytest.fixture
def repeated() -> Callable[[DatasetIndex, int], DatasetIndex]:
    """`repeated(index, times)`: the same pictures many times over, as one index."""

    def many(index: DatasetIndex, times: int) -> DatasetIndex:
        arrays = index.arrays()
        for data, offsets in (("path_bytes", "path_offsets"), ("labels", "label_offsets")):
            lengths = np.tile(np.diff(arrays[offsets]), times)
            arrays[data] = np.concatenate([arrays[data]] * times)
            arrays[offsets] = np.concatenate(([0], np.cumsum(lengths)))
        arrays["sizes"] = np.tile(arrays["sizes"], (times, 1))
        arrays["segment_offsets"] = np.zeros(len(arrays["labels"]) + 1, np.int64)
        return DatasetIndex.from_arrays(arrays)

    return many
