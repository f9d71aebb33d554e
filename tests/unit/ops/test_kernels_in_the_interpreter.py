"""Runs the tests of the fused kernels without a GPU, in Triton's interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from yolov9.ops.plain import triton_is_installed

NAMES = (
    "test_draw_samples.py",
    "test_fan_out.py",
    "test_fused_kernels.py",
    "test_fused_loss.py",
    "test_picture_convolution.py",
)
FOLDER = Path(__file__).parents[2] / "gpu"


@pytest.mark.skipif(not triton_is_installed(), reason="Triton is not installed; PyTorch's CUDA builds bring it")
@pytest.mark.parametrize("name", NAMES)
def test_fused_kernels_equal_their_twins_in_the_interpreter(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER / name)],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout
