"""Kernels that do not run are given up with a line, before the first batch."""

import logging
from collections.abc import Iterator

import pytest
import torch

from yolov9.engine import kernel_check
from yolov9.ops import plain
from yolov9.ops.plain import kernels_wanted, triton_is_installed


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(plain, "_plain_depth", list(plain._plain_depth))
    kernel_check.check_kernels.cache_clear()
    yield
    kernel_check.check_kernels.cache_clear()


def test_nothing_is_tried_on_a_cpu(caplog: pytest.LogCaptureFixture) -> None:
    kernel_check.check_kernels(torch.device("cpu"))
    assert not caplog.records
    assert kernels_wanted() == triton_is_installed()


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run here")
def test_kernels_that_cannot_run_are_given_up_once_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            kernel_check.check_kernels(torch.device("cuda", 0))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "do not run here: " in caplog.records[0].message
    assert not kernels_wanted()


def test_a_machine_without_triton_is_said_to_be_slower(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernel_check, "triton_is_installed", lambda: False)
    with caplog.at_level(logging.WARNING):
        kernel_check.check_kernels(torch.device("cuda", 0))
    assert "Triton is not installed" in caplog.records[0].message
    assert "slower" in caplog.records[0].message


def test_a_card_that_is_full_or_broken_is_no_reason_to_give_kernels_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(error: Exception) -> None:
        def raises(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(torch, "ones", raises)

    monkeypatch.setattr(kernel_check, "triton_is_installed", lambda: True)
    fail(torch.OutOfMemoryError("CUDA out of memory"))
    kernel_check.check_kernels(torch.device("cuda", 0))
    kernel_check.check_kernels.cache_clear()
    fail(RuntimeError("CUDA error: an illegal memory access was encountered"))
    with pytest.raises(RuntimeError, match="illegal"):
        kernel_check.check_kernels(torch.device("cuda", 0))
    assert kernels_wanted() == triton_is_installed()
