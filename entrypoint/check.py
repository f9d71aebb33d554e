"""`check`: one table of the machine with OK, WARN or FAIL and the remedy for each."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from entrypoint.host import HostFacts, read_facts
from entrypoint.host.wheel import version_pair
from entrypoint.options import build_parser, convert, options_of, parse
from entrypoint.plan.device import ADD_GPU, gpu_problem
from entrypoint.plan.visible import visible_gpus
from entrypoint.request import ReportOptions
from entrypoint.table import table
from entrypoint.units import GIB, MIB, count_text, size_text
from yolov9.config.environment import read_environment
from yolov9.errors import ExitCode
from yolov9.logs import show_text

OK, WARN, FAIL = "OK", "WARN", "FAIL"
OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 7)
FEW_FILES = 1024
"""Soft limit of open files below which many workers and pictures can hit it."""
FEW_PROCESSES = 64
"""Trainer, loader processes and their threads."""
LITTLE_MEMORY_BYTES = 2 * GIB
LITTLE_SHM_BYTES = 1 * GIB
"""What NCCL and a staged copy like to have; the loader needs none."""
LITTLE_DISK_BYTES = 200 * MIB
"""last.pt of yolov9-s and the one before it take more."""
ALLOCATION_TIMEOUT_S = 180
_ALLOCATION = """
import torch
for number in range(torch.cuda.device_count()):
    block = torch.ones(1 << 20, device=f"cuda:{number}")
    assert float(block.sum()) == 1 << 20
    print(f"{number}: {torch.cuda.get_device_name(number)}")
"""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of the table."""

    name: str
    status: str
    found: str
    remedy: str = ""
    exit_code: int = 0
    """Of a FAIL; else 0."""


def run_check(argv: Sequence[str]) -> int:
    """Prints the table; returns 0, or the exit code of the first FAIL."""
    parser = build_parser(
        "check", "Looks at the machine: limits, GPUs, versions, folders.", {"the report": [ReportOptions]}
    )
    texts, _ = parse(parser, argv)
    known = options_of([ReportOptions])
    options = ReportOptions(**{name: convert(known[name], raw, name) for name, raw in texts.items()})
    facts = checked_facts(options.root)
    here = options.root == "/"
    checks = [*machine_checks(facts), *(_allocation(facts) if here else [])]
    if options.json:
        data = {"checks": [asdict(check) for check in checks], "facts": asdict(facts)}
        show_text(json.dumps(data, indent=1, default=str))
    else:
        show_text(check_table(checks))
    return next((check.exit_code for check in checks if check.status == FAIL), 0)


def checked_facts(root: str = "/") -> HostFacts:
    """Returns the facts to check; the folder of results by its real path, which is what is mounted."""
    return read_facts(root, [os.path.realpath("runs")])


def check_table(checks: Sequence[Check]) -> str:
    """Returns checks as text."""
    return table(
        [(check.status, check.name, " → ".join(filter(None, (check.found, check.remedy)))) for check in checks]
    )


def machine_checks(facts: HostFacts) -> list[Check]:
    """Returns all checks that take no time."""
    parts: tuple[Callable[[HostFacts], Iterator[Check]], ...] = (
        _versions,
        _cpu,
        _memory,
        _shm,
        _gpus,
        _limits,
        _folders,
    )
    return [check for part in parts for check in part(facts)]


def _versions(facts: HostFacts) -> Iterator[Check]:
    python = sys.version_info
    good = python >= OLDEST_PYTHON
    found = f"{python.major}.{python.minor}.{python.micro}"
    yield Check(
        name="Python",
        status=OK if good else FAIL,
        found=found,
        remedy="" if good else "Python 3.11 or newer",
        exit_code=0 if good else ExitCode.INTERNAL,
    )
    torch = facts.wheel.torch
    good = torch is not None and (version_pair(torch) or (0, 0)) >= OLDEST_TORCH
    built = f"for CUDA {facts.wheel.cuda}" if facts.wheel.cuda else "without CUDA"
    yield Check(
        name="PyTorch",
        status=OK if good else FAIL,
        found=f"{torch} {built}" if torch else "not installed",
        remedy="" if good else "PyTorch 2.7 or newer: pip install torch torchvision",
        exit_code=0 if good else ExitCode.INTERNAL,
    )


def _cpu(facts: HostFacts) -> Iterator[Check]:
    cpu = facts.cpu
    found = f"{count_text(cpu.usable)} of {cpu.online or 'an unknown number of'} ({cpu.source})"
    yield Check(
        name="CPUs",
        status=OK if cpu.usable >= 2 else WARN,
        found=found,
        remedy="" if cpu.usable >= 2 else "pictures are prepared by one process; docker run --cpus 4 helps",
    )
    for what in cpu.unreadable:
        yield Check(name="CPU limit", status=WARN, found=f"not understood: {what}", remedy="counted as no limit")


def _memory(facts: HostFacts) -> Iterator[Check]:
    memory = facts.memory
    limit = f", limit {size_text(memory.limit_bytes)}" if memory.limits else ", no limit"
    found = f"{size_text(memory.available_bytes)} available ({memory.source}{limit})"
    little = memory.available_bytes is not None and memory.available_bytes < LITTLE_MEMORY_BYTES
    remedy = "small pictures and batches only; docker run --memory 8g helps" if little else ""
    yield Check(
        name="memory", status=WARN if little or memory.available_bytes is None else OK, found=found, remedy=remedy
    )


def _shm(facts: HostFacts) -> Iterator[Check]:
    shm = facts.shm
    if not shm.present:
        yield Check(
            name="/dev/shm", status=WARN, found="absent", remedy="not needed on one GPU; several: leave --ipc=none out"
        )
        return
    small = shm.size_bytes is not None and shm.size_bytes < LITTLE_SHM_BYTES
    yield Check(
        name="/dev/shm",
        status=OK,
        found=f"{size_text(shm.free_bytes)} free of {size_text(shm.size_bytes)}",
        remedy="enough: the loader does not use it; several GPUs or a staged copy: --shm-size=8g" if small else "",
    )


def _gpus(facts: HostFacts) -> Iterator[Check]:
    shown = visible_gpus(facts.gpu.devices, read_environment().visible_devices)
    if facts.gpu.problem and facts.gpu.devices:
        yield Check(
            name="NVML", status=WARN, found=facts.gpu.problem, remedy="monitoring only; training goes on without"
        )
    if facts.gpu.failed_indices and not facts.gpu.devices:
        yield Check(
            name="GPU",
            status=FAIL,
            found=facts.gpu.problem or "no answer",
            remedy="restart the container; a GPU lost while running needs a reset of the host's driver",
            exit_code=ExitCode.NO_GPU,
        )
    elif not shown:
        why = facts.gpu.problem or "the driver shows none"
        if facts.gpu.devices:
            why = "CUDA_VISIBLE_DEVICES hides all of them"
        yield Check(name="GPU", status=WARN, found=f"none visible ({why})", remedy=f"trains on the CPU; {ADD_GPU}")
    for number, gpu in enumerate(shown):
        problem = gpu_problem(facts, gpu)
        holders = f", {len(gpu.processes)} other processes" if gpu.processes else ""
        found = f"{gpu.name}, {size_text(gpu.free_bytes)} free of {size_text(gpu.total_bytes)}{holders}, {gpu.uuid}"
        yield Check(
            name=f"GPU {number}",
            status=FAIL if problem else OK,
            found=found,
            remedy=problem or "",
            exit_code=ExitCode.NO_GPU if problem else 0,
        )
    if facts.gpu.driver:
        found = f"{facts.gpu.driver} (up to CUDA {facts.gpu.cuda or 'unknown'})"
        yield Check(name="driver", status=OK, found=found)


def _limits(facts: HostFacts) -> Iterator[Check]:
    limits = facts.limits
    few = limits.open_files is not None and limits.open_files < FEW_FILES
    yield Check(
        name="open files",
        status=WARN if few else OK,
        found=str(limits.open_files or "unlimited or unknown"),
        remedy="docker run --ulimit nofile=65536" if few else "",
    )
    few = limits.processes is not None and limits.processes < FEW_PROCESSES
    yield Check(
        name="processes",
        status=WARN if few else OK,
        found=str(limits.processes or "unlimited or unknown"),
        remedy="docker run --pids-limit 512" if few else "",
    )


def _folders(facts: HostFacts) -> Iterator[Check]:
    for folder in facts.folders:
        bad = folder.writable is False
        little = folder.free_bytes is not None and folder.free_bytes < LITTLE_DISK_BYTES
        user = f"user {facts.limits.uid}:{facts.limits.gid}"
        medium = "" if folder.medium == "unknown" else f", {folder.medium}"
        yield Check(
            name=f"folder {folder.path}",
            status=FAIL if bad else WARN if little else OK,
            found=f"{'not ' if bad else ''}writable by {user}, {size_text(folder.free_bytes)} free{medium}",
            remedy="mount one: docker run -v ./runs:/runs --user ITS-OWNER, or --project FOLDER" if bad else "",
            exit_code=ExitCode.OUTPUT_NOT_WRITABLE if bad else 0,
        )


def _allocation(facts: HostFacts) -> Iterator[Check]:
    """A real allocation on each GPU: counts and names alone do not prove that CUDA works."""
    if not visible_gpus(facts.gpu.devices, read_environment().visible_devices):
        return
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ALLOCATION],
            capture_output=True,
            text=True,
            timeout=ALLOCATION_TIMEOUT_S,
            check=False,
        )
        lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
        good = done.returncode == 0 and bool(lines)
    except (OSError, subprocess.TimeoutExpired) as error:
        lines, good = [str(error)], False
    yield Check(
        name="test allocation",
        status=OK if good else FAIL,
        found="; ".join(lines) if good else (lines[-1] if lines else "no GPU that CUDA can use"),
        remedy="" if good else "see the rows above; the driver's log on the host (dmesg) tells more",
        exit_code=0 if good else ExitCode.NO_GPU,
    )
