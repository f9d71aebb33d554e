"""The share of a GPU's memory."""

import pytest
import torch

from yolov9.config.gpu_share import OVERHEAD_BYTES, allocator_limit_bytes
from yolov9.engine.gpu_memory import limit_allocator, peak_text

GB = 1_000_000_000


def test_p21_two_jobs_with_half_a_card_each_fit_together_with_all_that_cuda_takes() -> None:
    assert 2 * (allocator_limit_bytes(16 * GB, 0.5) + OVERHEAD_BYTES) <= 16 * GB


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_tensors_and_what_cuda_takes_stay_within_the_share(share: float) -> None:
    assert allocator_limit_bytes(140 * GB, share) + OVERHEAD_BYTES == pytest.approx(140 * GB * share, abs=1)


def test_a_share_that_does_not_hold_the_context_leaves_nothing() -> None:
    assert allocator_limit_bytes(8 * GB, 0.1) == 0


def test_the_cpu_has_no_share_and_no_peak() -> None:
    limit_allocator(torch.device("cpu"), 0.5)
    assert peak_text(torch.device("cpu")) == ""
