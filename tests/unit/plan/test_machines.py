"""Machines on paper and what the plan must decide on each: one table, a row a machine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from entrypoint.host import read_facts
from entrypoint.inputs import resolve_inputs
from entrypoint.plan import make_plan
from entrypoint.request import make_request
from yolov9.errors import UserError

MakeTree = Callable[..., Path]
GIB = 1 << 30
MIB = 1 << 20
CU13 = {"torch": "2.14.1+cu130", "cuda": "13.0"}
CU12 = {"torch": "2.14.1+cu126", "cuda": "12.6"}
CPU_BUILD = {"torch": "2.14.1+cpu", "cuda": None}
DRIVER = {"driver": "580.65.06", "cuda": "13.0"}
V2 = {"proc/self/cgroup": "0::/box\n", "sys/fs/cgroup/cgroup.controllers": "cpu memory\n"}


def gpu(name: str, total_gib: float, capability: tuple[int, int], **more: Any) -> dict[str, Any]:
    """A card; all but 0.4 GiB of it free unless told otherwise."""
    total = int(total_gib * GIB)
    return {"name": name, "total": total, "free": total - 400 * MIB, "capability": capability, **more}


T4 = gpu("Tesla T4", 15, (7, 5))
GTX_1080_TI = gpu("NVIDIA GeForce GTX 1080 Ti", 11, (6, 1))
GTX_1660 = gpu("NVIDIA GeForce GTX 1660", 6, (7, 5))
V100 = gpu("Tesla V100-SXM2-16GB", 16, (7, 0))
RTX_4090 = gpu("NVIDIA GeForce RTX 4090", 24, (8, 9), uuid="GPU-4090")
A10G = gpu("NVIDIA A10G", 22.5, (8, 6), uuid="GPU-a10g")
A100 = gpu("NVIDIA A100-SXM4-80GB", 80, (8, 0), uuid="GPU-a100")
A100_SHARED = gpu(
    "NVIDIA A100-SXM4-80GB", 80, (8, 0), free=24 * GIB, processes=[{"pid": 99, "used": 55 * GIB, "name": "python"}]
)
H200 = gpu("NVIDIA H200", 140, (9, 0))
FULL = gpu("NVIDIA A10G", 22.5, (8, 6), free=int(0.8 * GIB))
MIG = gpu("NVIDIA A100 MIG 1g.10gb", 9.5, (8, 0), uuid="MIG-1111", mig=True)


@dataclass(frozen=True)
class Machine:
    """A row: the machine, the command, and the decisions or the error."""

    name: str
    expected: Mapping[str, Any]
    cpus: float = 16
    memory_gib: float = 64
    gpus: tuple[dict[str, Any], ...] = ()
    wheel: Mapping[str, Any] = field(default_factory=lambda: CU13)
    given: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    argv: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    error: tuple[int, str] | None = None
    """Exit code and words of the message."""


def on(name: str, *gpus: dict[str, Any], **rest: Any) -> Machine:
    """A machine with GPUs."""
    return Machine(name, rest.pop("expected", {}), gpus=gpus, **rest)


MACHINES = [
    # cards
    on("T4, 16 CPUs", T4, expected={"device": "0", "workers": 15, "amp": "fp16", "batch_size": 16, "accumulate": 4}),
    on(
        "1080 Ti, 4 CPUs, cuda12",
        GTX_1080_TI,
        cpus=4,
        wheel=CU12,
        expected={"device": "0", "workers": 3, "threads": 1, "amp": "off", "batch_size": 8, "accumulate": 8},
    ),
    on("1080 Ti, cuda13 wheels", GTX_1080_TI, error=(69, "use the cuda12 image")),
    on("1080 Ti asked for, cuda13 wheels", GTX_1080_TI, argv="--device 0", error=(69, "use the cuda12 image")),
    on("V100, cuda13 wheels", V100, error=(69, "use the cuda12 image")),
    on("V100, cuda12 wheels", V100, wheel=CU12, expected={"amp": "fp16", "batch_size": 32, "accumulate": 2}),
    on("4090", RTX_4090, expected={"amp": "bf16", "batch_size": 32}),
    on("5090, cuda12.6 wheels", gpu("RTX 5090", 32, (12, 0)), wheel=CU12, error=(69, "use the cuda13 image")),
    on("A10G", A10G, expected={"amp": "bf16", "batch_size": 32, "accumulate": 2}),
    on("A10G, yolov9-e", A10G, argv="--cfg yolov9-e", expected={"batch_size": 8, "accumulate": 8}),
    on("A10G at 1280", A10G, argv="--img 1280", expected={"batch_size": 8, "accumulate": 8}),
    on("A10G, multi-scale", A10G, argv="--multi-scale", expected={"batch_size": 16, "accumulate": 4}),
    on("A100 alone", A100, expected={"amp": "bf16", "batch_size": 64, "accumulate": 1}),
    on("A100, a neighbour holds 55 GB", A100_SHARED, expected={"batch_size": 32, "accumulate": 2}),
    on("H200", H200, expected={"device": "0", "batch_size": 64, "accumulate": 1, "workers": 15}),
    on("H200, yolov9-e at 640", H200, argv="--cfg yolov9-e", expected={"batch_size": 64}),
    on("GTX 1660 gives NaN in fp16", GTX_1660, expected={"amp": "off", "batch_size": 4, "accumulate": 16}),
    on("bf16 asked on a T4", T4, argv="--amp bf16", expected={"amp": "fp16"}),
    on("card full of neighbours", FULL, error=(69, "819.2 MiB for this job")),
    on("card full, batch asked", FULL, argv="--batch 8", expected={"batch_size": 8, "accumulate": 8}),
    # choice of cards
    on("two cards, automatic", T4, A10G, expected={"device": "1", "ranks": 1}),
    on(
        "two cards, both",
        A10G,
        {**A10G, "uuid": "GPU-b"},
        argv="--device 0,1",
        cpus=8,
        expected={"ranks": 2, "workers": 3},
    ),
    on(
        "two cards, batch over both",
        A10G,
        {**A10G, "uuid": "GPU-b"},
        argv="--device 0,1 --batch 32",
        expected={"batch_size": 16, "accumulate": 2},
    ),
    on(
        "two cards, odd batch", A10G, {**A10G, "uuid": "GPU-b"}, argv="--device 0,1 --batch 33", error=(2, "--batch 32")
    ),
    on("by UUID", T4, A10G, argv="--device GPU-a10g", expected={"device": "1"}),
    on("number that is not there", T4, argv="--device 3", error=(69, "0 = Tesla T4")),
    on("named twice", T4, argv="--device 0,0", error=(2, "twice")),
    on(
        "hidden by number",
        T4,
        A10G,
        variables={"CUDA_VISIBLE_DEVICES": "1"},
        argv="--device 0",
        expected={"device": "0"},
    ),
    on("hidden by UUID", T4, A100, variables={"CUDA_VISIBLE_DEVICES": "GPU-a100"}, expected={"batch_size": 64}),
    on("all hidden", T4, variables={"CUDA_VISIBLE_DEVICES": ""}, expected={"device": "cpu"}),
    on("all hidden, one asked", T4, variables={"CUDA_VISIBLE_DEVICES": "-1"}, argv="--device 0", error=(69, "hides 1")),
    on("MIG slice", MIG, expected={"device": "0", "batch_size": 16, "amp": "bf16"}),
    on("MIG slice by UUID", MIG, argv="--device MIG-1111", expected={"device": "0"}),
    on("CPU asked beside a card", A100, argv="--device cpu", expected={"device": "cpu", "amp": "off"}),
    # drivers and builds
    on("driver too old for CUDA 13", A10G, given={"driver": "550.54.14"}, error=(69, "cuda12 image")),
    on("driver 450 with CUDA 12", A10G, wheel=CU12, given={"driver": "450.80.02"}, error=(69, "525.60")),
    on("build without CUDA", A10G, wheel=CPU_BUILD, expected={"device": "cpu"}),
    on("build without CUDA, GPU asked", A10G, wheel=CPU_BUILD, argv="--device 0", error=(69, "without CUDA")),
    Machine(
        "no NVML, GPU asked",
        {},
        given={"nvml_error": "NVML: Driver Not Loaded"},
        argv="--device 0",
        error=(69, "Not Loaded"),
    ),
    Machine("no NVML", {"device": "cpu"}, given={"nvml_error": "NVML: Driver Not Loaded"}),
    # shares
    on("two jobs on 16 GB", gpu("RTX A4000", 16, (8, 6)), argv="--jobs 2", expected={"batch_size": 8, "workers": 7}),
    on("share from a variable", A100, variables={"YOLOV9_GPU_SHARE": "0.25"}, expected={"batch_size": 32}),
    on("p22: two jobs on 4 CPUs", A10G, cpus=4, argv="--jobs 2", expected={"workers": 1, "batch_size": 16}),
    # CPUs
    Machine("v2 leaf quota", {"workers": 1, "threads": 2}, files={**V2, "sys/fs/cgroup/box/cpu.max": "200000 100000"}),
    on(
        "v2 parent quota",
        H200,
        files={**V2, "sys/fs/cgroup/box/cpu.max": "max 100000", "sys/fs/cgroup/cpu.max": "400000 100000"},
        expected={"workers": 3},
    ),
    on(
        "half a CPU",
        H200,
        files={**V2, "sys/fs/cgroup/box/cpu.max": "50000 100000"},
        expected={"workers": 1, "threads": 1},
    ),
    on("one CPU and a half", H200, files={**V2, "sys/fs/cgroup/box/cpu.max": "150000 100000"}, expected={"workers": 1}),
    on(
        "v1 quota -1",
        H200,
        cpus=8,
        files={"proc/self/cgroup": "1:cpu:/x\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"},
        expected={"workers": 7},
    ),
    on(
        "cpuset of 1",
        H200,
        files={**V2, "sys/fs/cgroup/box/cpuset.cpus.effective": "5"},
        expected={"workers": 1, "threads": 1},
    ),
    on("128 CPUs", H200, cpus=128, expected={"workers": 16, "threads": 4}),
    on("128 CPUs, 40 workers asked", H200, cpus=128, argv="--workers 40", expected={"workers": 40}),
    on("8 workers asked of 4 CPUs", H200, cpus=4, argv="--workers 8", expected={"workers": 3}),
    on("no workers asked", H200, argv="--workers 0", expected={"workers": 0}),
    on("scheduler's request", H200, variables={"SLURM_CPUS_PER_TASK": "6"}, expected={"workers": 5}),
    on("threads set by the user", H200, variables={"OMP_NUM_THREADS": "2"}, expected={"threads": 2}),
    # memory
    Machine("64 GB and no GPU", {"device": "cpu", "batch_size": 16, "accumulate": 4, "workers": 2, "threads": 16}),
    Machine("4 GB and no GPU", {"batch_size": 2, "accumulate": 32}, memory_gib=4),
    Machine("batch too large for the CPU", {"batch_size": 8, "accumulate": 8}, memory_gib=24, argv="--batch 64"),
    Machine(
        "its accumulation is kept", {"batch_size": 8, "accumulate": 16}, memory_gib=24, argv="--batch 64 --accumulate 2"
    ),
    Machine(
        "memory.max on the parent",
        {"batch_size": 1},
        files={
            **V2,
            "sys/fs/cgroup/memory.max": str(2 * GIB),
            "sys/fs/cgroup/memory.current": str(GIB),
            "sys/fs/cgroup/box/memory.max": "max",
        },
    ),
    on(
        "512 MB beside a card",
        T4,
        files={**V2, "sys/fs/cgroup/box/memory.max": str(512 * MIB)},
        expected={"prefetch": 2, "workers": 1},
    ),
    # /dev/shm
    on(
        "p01: 64 MB shm, 4 workers",
        H200,
        given={"shm": {"size": 64 * MIB}},
        argv="--workers 4",
        expected={"workers": 4, "prefetch": 4},
    ),
    on(
        "shm full of somebody else's files", H200, given={"shm": {"size": 8 * GIB, "free": 0}}, expected={"workers": 15}
    ),
    on("no shm at all", H200, given={"shm": None}, expected={"workers": 15}),
]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_machine(machine: Machine, make_tree: MakeTree) -> None:
    meminfo = f"MemTotal: {int(machine.memory_gib * MIB)} kB\nMemAvailable: {int(machine.memory_gib * MIB)} kB\n"
    given = {
        "affinity": machine.cpus,
        "cpu_count": machine.cpus,
        "gpus": list(machine.gpus),
        "wheel": dict(machine.wheel),
        **(DRIVER if machine.gpus else {}),
        **machine.given,
    }
    facts = read_facts(make_tree({"proc/meminfo": meminfo, **machine.files}, given))
    argv = machine.argv.split() if "--cfg" in machine.argv else [*machine.argv.split(), "--cfg", "yolov9-s"]
    request = resolve_inputs(make_request("train", argv, variables=machine.variables))
    if machine.error is not None:
        with pytest.raises(UserError) as caught:
            make_plan(facts, request)
        assert (caught.value.exit_code, machine.error[1] in str(caught.value)) == (machine.error[0], True), caught.value
        return
    plan = make_plan(facts, request)
    assert {name: plan.value(name) for name in machine.expected} == dict(machine.expected)
    assert all(decision.source and decision.reason for decision in plan.decisions)


def test_the_table_has_at_least_forty_machines_with_different_names() -> None:
    assert len({machine.name for machine in MACHINES}) == len(MACHINES) >= 40
