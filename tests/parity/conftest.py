"""Shared by the parity tests: the inputs that the fixtures were made with."""

from collections.abc import Callable

import numpy as np
import pytest
import torch


@pytest.fixture(scope="session")
def model_input() -> Callable[[int, list[int]], torch.Tensor]:
    """Makes pictures: seed and shape -> 0 to 1, RGB, float32."""
    return lambda seed, shape: torch.from_numpy(np.random.default_rng(seed).random(tuple(shape), dtype=np.float32))
