"""Reports about shared memory and memory limits: P01, P02, P03, P07, P08, P09."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from entrypoint.host import read_facts
from entrypoint.plan import Plan, make_plan
from entrypoint.request import make_request
from entrypoint.staging.survey import survey_staging
from yolov9.data import DatasetIndex, load_dataset_config

GIB = 1 << 30
MIB = 1 << 20
REPOSITORY = Path(__file__).parents[3]
PlanOn = Callable[..., Plan]


def budget(plan: Plan, resource: str) -> dict[str, int]:
    found = next(budget for budget in plan.budgets if budget.resource == resource)
    assert found.fits
    return {need.what: need.size_bytes for need in found.needs}


def test_p01_with_64_megabytes_of_shm_nothing_has_to_give_way(plan_on: PlanOn) -> None:
    plan = plan_on("--img 640 --batch 16 --workers 4 --device cpu", shm={"size": 64 * MIB})
    assert plan.value("workers") == 4
    assert plan.value("prefetch") == 4
    assert budget(plan, "/dev/shm") == {"loader": 0}
    assert budget(plan, "memory")["ring"] == 4 * 16 * 640 * 640 * 3
    assert "nothing in /dev/shm" in plan["prefetch"].reason
    assert any("64 MiB" in found.source for found in plan.budgets if found.resource == "/dev/shm")


@pytest.mark.parametrize("size", [2 * GIB, 8 * GIB])
def test_p02_two_jobs_that_share_shm_take_none_of_it_and_half_the_memory_each(plan_on: PlanOn, size: int) -> None:
    alone = plan_on("--img 1280 --batch 16 --workers 16 --device cpu", shm={"size": size, "free": MIB})
    shared = plan_on("--img 1280 --batch 16 --workers 16 --device cpu --jobs 2", shm={"size": size, "free": MIB})
    for plan in (alone, shared):
        assert budget(plan, "/dev/shm") == {"loader": 0}
    allowed = [next(b for b in plan.budgets if b.resource == "memory").available_bytes for plan in (alone, shared)]
    assert allowed[0] == 2 * allowed[1]


BUS_ERROR = """
import mmap, os, sys, tempfile
from entrypoint.supervise import explain, supervise
from yolov9.logs import setup_logging
TRAINER = '''
import mmap, tempfile
file = tempfile.TemporaryFile()
file.truncate(mmap.PAGESIZE)
view = mmap.mmap(file.fileno(), mmap.PAGESIZE)
file.truncate(0)
view[0]
'''
setup_logging()
ending = supervise([sys.executable, "-c", TRAINER])
explain(ending, suspects=["/dev/shm: 31 GiB free of 32 GiB", "/data: nfs4 (network)"])
raise SystemExit(ending.exit_code)
"""


def test_p03_a_bus_error_names_shm_and_the_mounts_as_suspects() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUS_ERROR], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 135
    assert "SIGBUS" in done.stderr
    assert "/data: nfs4 (network)" in done.stderr
    assert "/dev/shm: 31 GiB free" in done.stderr


V2_LIMIT = {"sys/fs/cgroup/memory.max": "2147483648", "sys/fs/cgroup/memory.current": "1500000000"}
V1_LIMIT = {
    "proc/self/cgroup": "2:memory:/docker/0123\n",
    "proc/self/mountinfo": "41 39 0:31 /docker/0123 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "1500000000",
}


@pytest.mark.parametrize(
    ("files", "value"), [(V2_LIMIT, "off"), (V1_LIMIT, "off"), ({"sys/fs/cgroup/memory.max": "max"}, "ram")]
)
def test_p07_the_ram_cache_is_sized_by_the_containers_limit(plan_on: PlanOn, files: dict[str, str], value: str) -> None:
    """3 GB decoded in both splits, on a host with 64 GiB."""
    pictures = round(3e9 / (320 * 320 * 3))
    plan = plan_on("--cache ram --img 320 --batch 1 --device cpu", files=files, pictures=pictures)
    assert plan.value("cache") == value
    if value == "off":
        assert "2.8 GiB" in plan["cache"].reason
        assert "2147483648" in plan["cache"].reason
        assert "--cache disk" in plan["cache"].reason


@pytest.mark.parametrize(("available", "value"), [(600 * MIB, "off"), (16 * GIB, "fast")])
def test_p08_a_copy_is_measured_and_refused_when_the_memory_limit_is_too_low_for_it(
    tiny_set: Path, tmp_path: Path, available: int, value: str
) -> None:
    place = tmp_path / "fast"
    place.mkdir()
    request = make_request("train", ["--data", str(tiny_set), "--stage", str(place)], variables={})
    facts = read_facts()
    facts = replace(facts, memory=replace(facts.memory, available_bytes=available, source="memory.max"))
    survey = survey_staging(request, facts, clean=False)
    assert survey is not None
    assert survey.size_bytes > 12 * 96 * 96 * 3 // 2
    (target,) = survey.targets
    # As if it lay on a tmpfs with 10 GB of room.
    target = replace(target, folder=replace(target.folder, medium="memory"), free_bytes=10 * GIB)
    plan = make_plan(facts, replace(request, model="yolov9-t", staging=replace(survey, targets=(target,))))
    assert Path(str(plan.value("stage"))).name == value
    assert ("memory.max" in plan["stage"].reason) == (value == "off")


def test_p09_an_index_of_300_000_pictures_is_a_few_flat_arrays(
    tiny_set: Path, repeated: Callable[[DatasetIndex, int], DatasetIndex]
) -> None:
    index = DatasetIndex.build(load_dataset_config(str(tiny_set)), "train", cache_dir=None)
    many = repeated(index, 300_000 // len(index))
    assert len(many) == 300_000
    assert many.path(299_999) == index.path(len(index) - 1)
    kinds = {field.name: type(getattr(many, field.name)) for field in fields(many)}
    objects = {name for name, kind in kinds.items() if kind is not np.ndarray}
    assert objects == {"names", "nc", "summary"}
    assert sum(value.nbytes for value in many.arrays().values()) < 300_000 * (len(index.path(0)) + 80)
