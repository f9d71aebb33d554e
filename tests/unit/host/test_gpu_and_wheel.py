"""GPUs and what the installed PyTorch can run on."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.host import read_facts
from entrypoint.host.gpu import read_gpus
from entrypoint.host.tree import open_tree
from entrypoint.host.wheel import WheelFacts, read_wheel, version_pair
from yolov9.errors import UserError

FAKE_NVML = Path("/var/lib/fake-gpu/lib")
MakeTree = Callable[..., Path]


def test_gpus_of_a_fake_root(make_tree: MakeTree) -> None:
    gpu = {"name": "Tesla T4", "total": 16_000, "free": 9_000, "capability": [7, 5], "uuid": "GPU-abc"}
    facts = read_gpus(open_tree(make_tree({}, {"gpus": [gpu], "driver": "580.65.06", "cuda": "13.0"})))
    assert (facts.devices[0].name, facts.devices[0].used_bytes, facts.devices[0].capability) == (
        "Tesla T4",
        7_000,
        (7, 5),
    )
    assert (facts.driver, facts.cuda, facts.source) == ("580.65.06", "13.0", "facts.json")


def test_a_fake_root_without_facts_has_no_gpu(make_tree: MakeTree) -> None:
    assert read_gpus(open_tree(make_tree({}))).devices == ()


@pytest.mark.parametrize(
    ("torch", "cuda", "capability", "supported"),
    [
        ("2.14.1", "13.0", (6, 1), False),
        ("2.14.1", "13.0", (7, 5), True),
        ("2.14.1", "13.0", (12, 0), True),
        ("2.10.0", "12.8", (7, 0), True),
        ("2.11.0", "12.8", (7, 0), False),
        ("2.14.1", "12.6", (6, 1), True),
        ("2.14.1", "12.6", (12, 0), False),
        ("2.14.1", None, (8, 0), None),
        ("2.14.1", "13.0", None, None),
    ],
)
def test_which_cards_a_wheel_has_code_for(
    torch: str, cuda: str | None, capability: tuple[int, int] | None, supported: bool | None
) -> None:
    assert WheelFacts(torch=torch, cuda=cuda).supports(capability) is supported


def test_the_installed_wheel_is_read_without_importing_it() -> None:
    code = (
        "import sys; from entrypoint.host.wheel import read_wheel; from entrypoint.host.tree import open_tree; "
        "facts = read_wheel(open_tree('/')); assert 'torch' not in sys.modules; print(facts.torch)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    assert version_pair(done.stdout) is not None


def test_a_wheel_on_paper(make_tree: MakeTree) -> None:
    facts = read_wheel(open_tree(make_tree({}, {"wheel": {"torch": "2.7.0", "cuda": "12.6"}})))
    assert (facts.cuda_version, facts.minimum_driver()) == ((12, 6), (525, 60))


@pytest.mark.skipif(not FAKE_NVML.is_dir(), reason="needs the stand-in NVML library under /var/lib/fake-gpu")
@pytest.mark.parametrize("broken", [None, "init", "second"])
def test_nvml_is_read_and_what_does_not_answer_is_said(tmp_path: Path, broken: str | None) -> None:
    gpus: list[dict[str, object]] = [
        {
            "name": "A",
            "total_mib": 16384,
            "reserved_mib": 384,
            "processes": [{"pid": 7, "name": "x", "used_mib": 9000}],
        },
        {"name": "B", "total_mib": 8192, "compute_capability": "7.5"},
    ]
    if broken == "second":
        gpus[1]["error"] = 15
    config = {"driver_version": "580.65.06", "cuda_version": "13.0", "gpus": gpus}
    if broken == "init":
        config["init_error"] = 9
    (tmp_path / "gpus.json").write_text(json.dumps(config))
    code = (
        "import json; from dataclasses import asdict; from entrypoint.host.gpu_nvml import read_nvml; "
        "print(json.dumps(asdict(read_nvml())))"
    )
    variables = {
        **os.environ,
        "LD_LIBRARY_PATH": str(FAKE_NVML),
        "FAKE_GPU_NO_DEVICE_FILES": "1",
        "FAKE_GPU_CONFIG": str(tmp_path / "gpus.json"),
    }
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    facts = json.loads(done.stdout)
    names = [gpu["name"] for gpu in facts["devices"]]
    assert names == {None: ["A", "B"], "init": [], "second": ["A"]}[broken]
    assert (facts["problem"] is None) == (broken is None)
    if broken is None:
        first = facts["devices"][0]
        assert first["free_bytes"] == (16384 - 384 - 9000) << 20
        assert first["processes"][0] == {"pid": 7, "used_bytes": 9000 << 20, "name": "x"}
        assert facts["devices"][1]["capability"] == [7, 5]
        assert (facts["driver"], facts["cuda"]) == ("580.65.06", "13.0")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "NaN",
        '{"affinity": "x"}',
        '{"gpus": [{}]}',
        '{"gpus": 3}',
        '{"shm": 1}',
        '{"shm": {"size": Infinity}}',
    ],
)
def test_a_machine_on_paper_with_odd_values_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "facts.json").write_text(text)
    with pytest.raises(UserError, match=r"facts\.json"):
        read_facts(tmp_path)


def test_a_root_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        read_facts(tmp_path / "none")
