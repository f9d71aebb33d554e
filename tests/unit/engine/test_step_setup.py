"""What is said while a step is made."""

import logging

import pytest
import torch

from yolov9.engine import step_setup


@pytest.mark.parametrize(("device", "installed", "lines"), [("cuda", False, 1), ("cuda", True, 0), ("cpu", False, 0)])
def test_a_gpu_without_triton_is_said_to_be_slower(
    device: str, installed: bool, lines: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(step_setup, "triton_is_installed", lambda: installed)
    with caplog.at_level(logging.WARNING):
        step_setup.say_missing_kernels(torch.device(device))
    assert len(caplog.records) == lines


def test_a_short_run_does_not_wait_for_a_search_that_a_long_one_gains_by() -> None:
    assert not step_setup.search_pays(85 * 13)
    assert step_setup.search_pays(300 * 1848)
