"""Kernels of a step are found and compiled without a GPU."""

import json
import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from yolov9.config.environment import read_environment
from yolov9.config.recipe import Recipe
from yolov9.config.settings import TrainSettings
from yolov9.engine import kernels_ahead
from yolov9.engine.distributed import Ranks
from yolov9.engine.kernels_ahead import StepToCompile
from yolov9.engine.precision import Precision
from yolov9.engine.run_context import RunContext, with_defaults
from yolov9.model import build_model
from yolov9.ops import plain
from yolov9.ops.plain import kernels_wanted, triton_is_installed

pytestmark = [
    pytest.mark.skipif(not triton_is_installed(), reason="Triton is not installed; PyTorch's CUDA builds bring it"),
    # Said from Python 3.12 on, where the test program has threads; the program that compiles has none.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
TINY = str(Path(__file__).with_name("tiny-graph.yaml"))
HOPPER = [9, 0]
STEP_KERNELS = {
    "statistics_kernel", "activate_kernel", "gradient_sums_kernel", "gradient_kernel", "_forward_kernel",
    "_weight_gradient_kernel", "_sums_kernel", "_boxes_kernel", "_claim_kernel", "_settle_kernel", "_soft_kernel",
    "_sum_kernel", "_slope_kernel", "_slot_kernel",
}  # fmt: skip
"""What the step of every model launches: normalisation, the first convolution, assigner and loss."""


def step_of(model: str) -> StepToCompile:
    return StepToCompile(
        graph=build_model(model, nc=2).graph, classes=2, imgsz=64, batches=[4], dtype="bfloat16", recompute=False,
        loss={}, capability=HOPPER, processes=2,
    )  # fmt: skip


def context_of(run_dir: Path, precision: Precision) -> RunContext:
    settings = with_defaults(TrainSettings(imgsz=64, batch_size=4, workers=2))
    return RunContext(
        settings=settings, recipe=Recipe(), run_dir=run_dir, precision=precision, ranks=Ranks(),
        environment=read_environment(),
    )  # fmt: skip


@pytest.mark.parametrize("model", ["yolov9-t", "yolov9-s", "yolov9-m", "yolov9-c", "yolov9-e", "gelan-c"])
def test_every_model_runs_without_content_and_launches_its_kernels(model: str) -> None:
    from yolov9.engine.compile_kernels import find_launches

    launches = find_launches(step_of(model))
    names = Counter(launch.kernel.__name__ for launch in launches)
    assert set(names) >= STEP_KERNELS
    assert names["gradient_kernel"] >= 5, "the batch normalisations, not only the first one"
    assert any(_has_type(launch, torch.float16) for launch in launches), "validation is in half precision"


def _has_type(launch: Any, dtype: torch.dtype) -> bool:
    return any(getattr(argument, "dtype", None) == dtype for argument in launch.arguments)


def test_compiled_kernels_are_found_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from yolov9.engine.compile_kernels import compile_all, find_launches

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    launches = find_launches(step_of(TINY))[:3]
    assert compile_all(launches, HOPPER, processes=2) == []
    programs = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*.cubin")}
    assert {path.stem for path in programs} == {launch.kernel.__name__ for launch in launches}
    compile_all(launches, HOPPER, processes=1)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*.cubin")} == programs


def test_a_failed_compilation_is_a_line_and_no_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    done = tmp_path / "ahead.json"
    with caplog.at_level(logging.INFO):
        kernels_ahead._compile(replace(step_of(TINY), dtype="no-type"), done)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "no-type" in caplog.records[1].message
    assert not done.exists()


@pytest.mark.parametrize(("capability", "dtype"), [([7, 5], "float16"), ([12, 0], "bfloat16")])
def test_every_kernel_of_a_step_compiles_for_older_and_newer_cards(
    capability: list[int], dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from yolov9.engine.compile_kernels import compile_all, find_launches

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    step = replace(step_of(TINY), dtype=dtype, capability=capability)
    launches = {launch.kernel: launch for launch in find_launches(step)}
    assert compile_all(list(launches.values()), capability, processes=2) == []
    assert len(list(tmp_path.glob("*/*.cubin"))) == len(launches)


def test_kernels_that_do_not_compile_for_a_card_are_given_up_in_this_run_and_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (3, 0))
    context = context_of(tmp_path, Precision(torch.device("cuda", 0), torch.float16))
    for lines in (3, 1):
        monkeypatch.setattr(plain, "_plain_depth", [0])
        caplog.clear()
        with caplog.at_level(logging.INFO):
            kernels_ahead.compile_kernels_ahead(context, build_model(TINY, nc=2))
        assert not kernels_wanted()
        assert len(caplog.records) == lines
        assert "do not compile for this GPU: " in caplog.records[-1].message


def test_the_first_start_of_a_run_compiles_and_the_next_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: tuple(HOPPER))
    context = context_of(tmp_path, Precision(torch.device("cuda", 0), torch.bfloat16))
    with caplog.at_level(logging.INFO):
        kernels_ahead.compile_kernels_ahead(context, build_model(TINY, nc=2))
        lines = len(caplog.records)
        kernels_ahead.compile_kernels_ahead(context, build_model(TINY, nc=2))
    assert "kernels compiled in" in caplog.records[-1].message
    assert len(caplog.records) == lines == 2
    note = next(tmp_path.glob("ahead-*.json"))
    assert json.loads(note.read_text())["kernels"] == len({path.parent for path in tmp_path.glob("*/*.cubin")})


def test_nothing_is_compiled_for_a_run_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    context = context_of(tmp_path, Precision(torch.device("cpu"), torch.bfloat16))
    kernels_ahead.compile_kernels_ahead(context, build_model(TINY, nc=2))
    assert list(tmp_path.iterdir()) == []


def test_other_steps_have_other_notes_and_the_number_of_processes_does_not_matter() -> None:
    step = step_of(TINY)
    digests = [kernels_ahead._digest(replace(step, **{name: value})) for name, value in (
        ("processes", 7), ("classes", 3), ("imgsz", 96), ("batches", [8]), ("recompute", True), ("capability", [8, 0]),
    )]  # fmt: skip
    assert digests[0] == kernels_ahead._digest(step)
    assert len(set(digests)) == len(digests)
