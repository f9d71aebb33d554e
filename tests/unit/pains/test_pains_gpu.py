"""Reports about GPUs that are shared, lost, too old or not passed in: P22, P36, P37."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from entrypoint.check import machine_checks
from entrypoint.host import read_facts
from entrypoint.host.gpu_nvml import read_nvml
from entrypoint.host.gpu_torch import read_torch
from entrypoint.plan import Plan, make_plan
from entrypoint.request import make_request
from yolov9.errors import UserError

GIB = 1 << 30
REPOSITORY = Path(__file__).parents[3]
GPU = {"name": "NVIDIA A10G", "total": 24 * GIB, "free": 23 * GIB, "capability": [8, 6]}
PlanOn = Callable[..., Plan]
TORCH = '''
"""Stands in for PyTorch on a machine whose GPU works although NVML does not."""
from types import SimpleNamespace
version = SimpleNamespace(cuda="13.0")
class cuda:
    device_count = staticmethod(lambda: 1)
    mem_get_info = staticmethod(lambda index: (20 << 30, 24 << 30))
    get_device_properties = staticmethod(
        lambda index: SimpleNamespace(name="NVIDIA A10G", major=8, minor=6, uuid="0123")
    )
'''


def test_p22_two_jobs_divide_the_cpus_and_are_told_when_the_card_is_busy(plan_on: PlanOn) -> None:
    busy = {**GPU, "free": 12 * GIB, "utilisation": 98}
    alone, shared = (plan_on(words, affinity=4, gpus=[busy], driver="580.65") for words in ("", "--jobs 2"))
    assert (alone.value("workers"), shared.value("workers")) == (3, 1)
    assert shared.value("gpu_share") == 0.5
    assert "saturated, running in turn is about as fast" in shared["neighbours"].reason


class NvmlError(Exception):
    """What NVML raises."""


def failing_nvml(works: int) -> ModuleType:
    """A driver of three GPUs that tells about memory so many times and then answers like one that lost its devices."""
    nvml = ModuleType("pynvml")
    answers = {"left": works}

    def memory(handle: int) -> Any:
        if not answers["left"]:
            raise NvmlError("Unknown Error")
        answers["left"] -= 1
        return type("Memory", (), {"total": 24 * GIB, "free": 20 * GIB})

    def unknown(*arguments: object) -> Any:
        raise NvmlError("Not Supported")

    members: dict[str, Any] = {
        "NVMLError": NvmlError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 3,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetName": lambda handle: "NVIDIA A10G",
    }
    for name in ("nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetMigMode"):
        members[name] = unknown
    for what in ("CudaComputeCapability", "UtilizationRates", "UUID", "ComputeRunningProcesses"):
        members[f"nvmlDeviceGet{what}"] = unknown
    for name, member in members.items():
        setattr(nvml, name, member)
    return nvml


def test_p36_a_reader_that_fails_after_two_answers_gives_those_and_one_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", failing_nvml(2))
    facts = read_nvml()
    assert [gpu.index for gpu in facts.devices] == [0, 1]
    assert facts.problem == "GPU 2: Unknown Error"
    assert facts.failed_indices == {2: "Unknown Error"}


def test_p36_without_nvml_the_plan_is_made_from_pytorchs_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_tree: Callable[..., Path]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", failing_nvml(0))
    (tmp_path / "stand-in").mkdir()
    (tmp_path / "stand-in" / "torch.py").write_text(TORCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stand-in"))
    without = read_nvml()
    assert not without.devices
    gpu = read_torch(without)
    assert gpu.source == "torch"
    facts = replace(
        read_facts(make_tree({}, {"affinity": 4, "wheel": {"torch": "2.14.1+cu130", "cuda": "13.0"}})), gpu=gpu
    )
    plan = make_plan(facts, replace(make_request("train", [], variables={}), model="yolov9-s"))
    assert plan.value("device") == "0"
    assert plan.value("batch_size") > 1
    warned = [check for check in machine_checks(facts) if check.name == "NVML"]
    assert [check.status for check in warned] == ["WARN"]


def test_p36_the_trainer_asks_nvml_nothing_so_its_loss_cannot_end_a_training() -> None:
    assert not [path for path in (REPOSITORY / "yolov9").rglob("*.py") if "nvml" in path.read_text(encoding="utf-8")]


def test_p37_no_gpu_and_device_auto_goes_on_with_a_loud_line(plan_on: PlanOn) -> None:
    plan = plan_on()
    assert plan.value("device") == "cpu"
    assert plan["device"].degraded
    assert "docker run --gpus all" in plan["device"].reason


CUDA_12 = {"torch": "2.14.1+cu126", "cuda": "12.6"}
CPU_BUILD = {"torch": "2.14.1+cpu", "cuda": None}


@pytest.mark.parametrize(
    ("argv", "given", "words"),
    [
        ("--device 0", {}, ["--device 0", "docker run --gpus all"]),
        ("--device 0", {"gpus": [GPU], "driver": "450.80", "cuda": "11.0", "wheel": CUDA_12}, ["450.80", "12.6"]),
        ("", {"gpus": [GPU], "driver": "450.80", "cuda": "11.0", "wheel": CUDA_12}, ["450.80", "12.6", "525.60"]),
        ("--device 0", {"gpus": [GPU], "driver": "580.65", "wheel": CPU_BUILD}, ["without CUDA", "image"]),
        ("--device 1", {"gpus": [GPU], "driver": "580.65"}, ["--device 1", "NVIDIA A10G"]),
    ],
)
def test_p37_a_gpu_that_cannot_be_used_is_an_error_with_the_remedy(
    plan_on: PlanOn, argv: str, given: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(UserError) as caught:
        plan_on(argv, **given)
    assert caught.value.exit_code == 69
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("wheel", [CUDA_12, CPU_BUILD])
def test_p37_check_prints_one_table_and_fails(make_tree: Callable[..., Path], wheel: dict[str, Any]) -> None:
    root = make_tree({}, {"affinity": 4, "gpus": [GPU], "driver": "450.80", "cuda": "11.0", "wheel": wheel})
    variables = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        [sys.executable, "-m", "entrypoint", "check", "--root", str(root)],
        cwd=REPOSITORY,
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 69, done.stdout
    assert "FAIL" in done.stdout
    assert "450.80" in done.stdout
