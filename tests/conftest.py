"""Shared by all tests: where the parity fixtures and the real data lie."""

import os
from pathlib import Path

import pytest

SHARED_DIR = Path(os.environ.get("YOLOV9_TEST_SHARED", Path(__file__).parents[2] / "shared"))


def _need(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"{path} is absent; set YOLOV9_TEST_SHARED to the folder that holds it")
    return path


@pytest.fixture(scope="session")
def parity_dir() -> Path:
    """Folder of the parity fixtures."""
    return _need(SHARED_DIR / "parity")


@pytest.fixture(scope="session")
def real_data_dir() -> Path:
    """Folder of the real data sets."""
    return _need(SHARED_DIR / "data")
