"""Real limits of a real engine: what the plan says under them, and that a training ends as documented."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., str]
Start = Callable[..., Any]
TINY = ("--data", "/data/data.yaml", "--cfg", "yolov9-t", "--img", "64", "--epochs", "2", "--batch", "4", "--noplots")
MIB = 1 << 20
GIB = 1 << 30
GIVES_WAY = r"WARNING \w+ \(!\)"
"""A value that is less than what was asked for; each test looks at the plan for which."""


@dataclass(frozen=True)
class Limits:
    """Options of `docker run`, and what the plan has to make of them; independent ones share a container."""

    options: Sequence[str]
    words: Sequence[str]
    expected: Mapping[str, Any]
    sources: Mapping[str, str]
    """Decision -> pattern of its source."""
    shm_bytes: int = 64 * MIB


JOBS = {
    "half a CPU, few processes": Limits(
        options=("--cpus", "0.5", "--pids-limit", "64"),
        words=("--workers", "4"),
        expected={"workers": 1, "threads": 1},
        sources={"workers": r"cfs_quota_us 50000/100000|cpu\.max 50000 100000", "threads": "50000"},
    ),
    "a CPU and a half, a gigabyte of shm, two of memory": Limits(
        options=("--cpus", "1.5", "--shm-size", "1g", "--memory", "2g"),
        words=("--workers", "2"),
        expected={"workers": 1, "threads": 1, "batch_size": 4},
        sources={"workers": "150000/100000"},
        shm_bytes=GIB,
    ),
    "one CPU of a set, 64 MB of shm, four workers at 640": Limits(
        options=("--cpuset-cpus", "0", "--shm-size", "64m", "--tmpfs", "/tmp:size=64m"),
        words=("--workers", "4", "--img", "640"),
        expected={"workers": 1, "threads": 1, "imgsz": 640},
        sources={"workers": r"affinity|cpuset\.cpus"},
    ),
}


@pytest.fixture(scope="module")
def jobs(
    start_for_all: Start, tiny_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Any, Path]]:
    """All jobs of the table at the same time: container and folder of results."""
    started = {}
    for name, limits in JOBS.items():
        runs = tmp_path_factory.mktemp("runs")
        runs.chmod(0o777)
        mounts = ["--volume", f"{tiny_data}:/data:ro", "--volume", f"{runs}:/runs"]
        started[name] = (start_for_all("train", *TINY, *limits.words, options=[*mounts, *limits.options]), runs)
    return started


def test_p01_while_a_job_trains_nothing_lies_in_shared_memory(
    jobs: dict[str, tuple[Any, Path]], docker: Callable
) -> None:
    container, _ = jobs["one CPU of a set, 64 MB of shm, four workers at 640"]
    container.wait_for(r"epoch 1/2:")
    used = docker("exec", container.name, "df", "--output=used", "--block-size=1", "/dev/shm").stdout.split()[-1]
    assert int(used) == 0


@pytest.mark.parametrize("name", JOBS)
def test_p01_p04_a_job_fits_itself_to_its_limits_and_trains_to_the_end(
    jobs: dict[str, tuple[Any, Path]], name: str, quiet: Callable
) -> None:
    (container, runs), limits = jobs[name], JOBS[name]
    assert container.wait() == 0, container.log()
    quiet(container.log(), [GIVES_WAY])
    plan = json.loads((runs / "train/exp/plan.json").read_text())
    decisions = {decision["name"]: decision for decision in plan["decisions"]}
    assert {key: decisions[key]["value"] for key in limits.expected} == limits.expected
    for key, pattern in limits.sources.items():
        assert re.search(pattern, decisions[key]["source"]), decisions[key]
    assert plan["facts"]["shm"]["size_bytes"] == limits.shm_bytes
    assert len((runs / "train/exp/results.csv").read_text().splitlines()) == 3


def most_children(processes: str, command: str) -> int:
    """Of all processes with a command: how many children of the same command one of them has at most."""
    rows = [line.split(maxsplit=2) for line in processes.splitlines()[1:]]
    parents = {pid: parent for pid, parent, words in rows if command in words}
    return max(Counter(parent for parent in parents.values() if parent in parents).values(), default=0)


@pytest.mark.parametrize(("workers", "imgsz", "batch"), [(4, 640, 16), (8, 1280, 32)])
def test_p01_p02_any_number_of_loader_processes_takes_nothing_of_64_mb(
    run: Run,
    start: Start,
    docker: Callable,
    larger_data: Path,
    runs_dir: Path,
    workers: int,
    imgsz: int,
    batch: int,
) -> None:
    options = ["--volume", f"{larger_data}:/data:ro", "--volume", f"{runs_dir}:/runs", "--shm-size", "64m"]
    options += ["--env", "OMP_NUM_THREADS=1"]  # as the plan of a job with so many loader processes has it
    words = (*TINY, "--cfg", "/data/tiny.yaml", "--img", imgsz, "--batch", batch)
    plan = json.loads(run("plan", "--json", *words, options=options))
    # A small machine gets fewer than the test is about.
    plan["settings"] |= {"workers": workers, "fixed_workers": True}
    (runs_dir / "plan.json").write_text(json.dumps({**plan, "run_dir": "/runs/job"}))
    container = start("python", "-m", "yolov9", "/runs/plan.json", options=options)
    container.wait_for("epoch 1/2")
    assert most_children(docker("top", container.name, "-eo", "pid,ppid,args").stdout, "yolov9.data.server") == workers
    used = docker("exec", container.name, "df", "--output=used", "--block-size=1", "/dev/shm").stdout.split()[-1]
    assert int(used) < MIB
    assert container.wait() == 0, container.log()
    assert len((runs_dir / "job/results.csv").read_text().splitlines()) == 3


def test_p07_memory_in_which_no_training_fits_is_refused_before_it_starts(run: Run, tiny_data: Path) -> None:
    options = ["--volume", f"{tiny_data}:/data:ro", "--memory", "512m"]
    log = run("train", *TINY, options=options, exit_code=2, expected=["ERROR"])
    assert "536870912" in log
    assert "docker run --memory" in log


def test_a_kill_for_lack_of_memory_is_explained_with_limit_and_peak(run: Run) -> None:
    """The trainer's place is taken by a program that takes all memory there is."""
    script = """
import sys
from entrypoint.supervise import explain, supervise
from yolov9.logs import setup_logging
setup_logging()
ending = supervise([sys.executable, "-c", "b = [bytes(1 << 20) * 8 + b'x' for _ in range(1000)]"])
explain(ending)
raise SystemExit(ending.exit_code)
"""
    log = run("python", "-c", script, options=["--memory", "128m"], exit_code=137, expected=["ERROR"])
    assert "the kernel killed it for lack of memory: limit 128 MiB, peak 128 MiB" in log


def test_too_few_processes_are_refused_with_the_option_that_helps(run: Run, tiny_data: Path) -> None:
    options = ["--volume", f"{tiny_data}:/data:ro", "--pids-limit", "12"]
    log = run("train", *TINY, options=options, exit_code=2, expected=["ERROR"])
    assert "at most 12 processes" in log
    assert "--pids-limit 512" in log


def test_p37_a_gpu_that_the_driver_lists_and_cuda_cannot_use_ends_the_job(
    run: Run, gpu_options: list[str], tiny_data: Path, runs_dir: Path
) -> None:
    options = ["--volume", f"{tiny_data}:/data:ro", "--volume", f"{runs_dir}:/runs", *gpu_options]
    for words in ((), ("--device", "0")):
        log = run("train", *TINY, *words, options=options, exit_code=69, expected=["ERROR"])
        assert "GPU 0 cannot be used by PyTorch: Found no NVIDIA driver" in log
        assert "--device cpu" in log
        assert "Traceback" not in log
    assert not list((runs_dir / "train").iterdir()), "a refused job leaves no folder behind"


def test_p37_check_tries_the_gpu_and_fails_with_its_words(run: Run, gpu_options: list[str]) -> None:
    log = run("check", options=gpu_options, exit_code=69)
    assert re.search(r"OK +GPU 0 +Fake GPU", log)
    assert re.search(r"FAIL +test allocation .*NVIDIA driver", log)


def test_p10_p22_a_plan_names_the_neighbour_on_the_gpu(run: Run, gpu_options: list[str], tmp_path: Path) -> None:
    processes = [{"pid": 4242, "name": "python3", "used_mib": 9000}]
    card = {
        "name": "Fake A10G",
        "total_mib": 23028,
        "gpu_util": 97,
        "compute_capability": "8.6",
        "processes": processes,
    }
    (tmp_path / "gpu.json").write_text(json.dumps({"gpus": [card]}))
    options = [*gpu_options, "--volume", f"{tmp_path}/gpu.json:/gpu.json:ro", "--env", "FAKE_GPU_CONFIG=/gpu.json"]
    plan = json.loads(run("plan", "--json", "--cfg", "yolov9-s", options=options))
    decisions = {decision["name"]: decision for decision in plan["decisions"]}
    assert decisions["neighbours"]["value"] == "8.8 GiB in use on GPU 0"
    for words in ("pid 4242 python3 8.8 GiB", "13.7 GiB are free", "this job takes about", "97 % busy", "in turn"):
        assert words in decisions["neighbours"]["reason"]
    (budget,) = (budget for budget in plan["budgets"] if budget["resource"] == "GPU memory")
    assert budget["needed_bytes"] <= (23028 - 9000) * MIB
