"""Shared by all tests: where the parity fixtures and the real data lie, and weights that are the same everywhere."""

import os
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from yolov9.ops.plain import triton_is_installed

SHARED_DIR = Path(os.environ.get("YOLOV9_TEST_SHARED", Path(__file__).parents[2] / "shared"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """How thorough the tests are that are repeated with other random moments."""
    parser.addoption(
        "--chaos-runs", type=int, default=8, help="trainings that are killed and resumed (tests/cli/chaos)"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what needs a GPU where there is none."""
    mark = item.get_closest_marker("gpu")
    if mark is None or torch.cuda.is_available():
        return
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if not (mark.kwargs.get("interpreter") and interpreted and triton_is_installed()):
        pytest.skip("no CUDA GPU")


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


@pytest.fixture(scope="session")
def lab_dir() -> Path:
    """Folder of the scripts that give a machine another kernel and a pretended GPU."""
    return _need(SHARED_DIR / "lab")


def _deterministic(key: str, shape: tuple[int, ...], salt: str = "") -> np.ndarray:
    """Value of one state-dict entry, by the table in the README of the parity fixtures."""
    if key.endswith("num_batches_tracked"):
        return np.zeros(shape, np.int64)
    if ".dfl" in key:
        return np.arange(16, dtype=np.float32).reshape(shape)
    n = np.random.default_rng(zlib.crc32((salt + key).encode())).standard_normal(shape)
    if key.endswith("running_var"):
        value = 1 + 0.1 * np.abs(n)
    elif key.endswith("running_mean"):
        value = 0.1 * n
    elif len(shape) == 4:
        value = n * np.sqrt(1.35 / np.prod(shape[1:]))
    elif key.endswith("bn.weight"):
        value = 1 + 0.1 * n
    elif key.endswith("bn.bias"):
        value = 0.5 + 0.1 * n
    else:
        value = 0.1 * n
    return value.astype(np.float32)


@pytest.fixture(scope="session")
def fill_weights() -> Callable[..., nn.Module]:
    """Gives a model, built on any device, its deterministic weights on the CPU."""

    def fill(model: nn.Module, salt: str = "") -> nn.Module:
        state = {
            key: torch.from_numpy(np.asarray(_deterministic(key, tuple(value.shape), salt)))
            for key, value in model.state_dict().items()
        }
        model.load_state_dict(state, assign=True)
        return model

    return fill
