"""Shared by the parity tests: the deterministic weights and inputs that the fixtures were made with."""

import zlib
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn


def deterministic(key: str, shape: tuple[int, ...], salt: str = "") -> np.ndarray:
    """Value of one state-dict entry, by the table in the README of the fixtures."""
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
            key: torch.from_numpy(np.asarray(deterministic(key, tuple(value.shape), salt)))
            for key, value in model.state_dict().items()
        }
        model.load_state_dict(state, assign=True)
        return model

    return fill


@pytest.fixture(scope="session")
def model_input() -> Callable[[int, list[int]], torch.Tensor]:
    """Makes pictures: seed and shape -> 0 to 1, RGB, float32."""
    return lambda seed, shape: torch.from_numpy(np.random.default_rng(seed).random(tuple(shape), dtype=np.float32))
