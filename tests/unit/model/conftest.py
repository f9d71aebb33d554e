"""Small graphs for the tests of the model package."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

TINY_GRAPH = """
nc: 3
layers:
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, AConv, [16]]
  - [-1, 1, RepNCSPELAN4, [16, 16, 8, 1]]
  - [-1, 1, ADown, [16]]
  - [-1, 1, ADown, [16]]
  - [-1, 1, SPPELAN, [16, 8]]
  - [-1, 1, Upsample, [null, 2, nearest]]
  - [[-1, 4], 1, Concat, [1]]
  - [[3, 8, 6], 1, DDetect, [nc]]
"""
"""A graph with most block types that computes a 64-px picture in a few milliseconds."""


@pytest.fixture
def tiny_graph() -> dict[str, Any]:
    return dict(yaml.safe_load(TINY_GRAPH))


@pytest.fixture
def graph_file(tmp_path: Path) -> Callable[[dict[str, Any]], Path]:
    """Writes a graph as a user's file."""

    def write(content: dict[str, Any]) -> Path:
        path = tmp_path / "mine.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    return write
