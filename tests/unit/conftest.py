"""Machines on paper for the tests of the entrypoint."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

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
