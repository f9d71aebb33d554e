"""Where a plan has training pictures decoded, and what it says about it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from entrypoint.host import HostFacts, read_facts
from entrypoint.plan import Plan, make_plan, planned_settings
from entrypoint.plan.decode import SAMPLES_PER_CPU, pictures_per_s
from entrypoint.request import JobRequest, Source, make_request
from yolov9.errors import ExitCode, UserError

GIB = 1 << 30
MIB = 1 << 20
H200 = {"name": "NVIDIA H200", "total": 139 * GIB, "free": 138 * GIB, "capability": [9, 0]}
MakeTree = Callable[..., Path]
FactsOf = Callable[..., HostFacts]


@pytest.fixture
def facts_of(make_tree: MakeTree) -> FactsOf:
    """Function: a machine with so many CPUs and these GPUs."""

    def read(cpus: int, *gpus: Mapping[str, Any]) -> HostFacts:
        meminfo = f"MemTotal: {64 * MIB} kB\nMemAvailable: {64 * MIB} kB\n"
        wheel = {"torch": "2.14.1+cu130", "cuda": "13.0"}
        given = {"affinity": cpus, "wheel": wheel, "gpus": list(gpus), "driver": "580.65"}
        return read_facts(make_tree({"proc/meminfo": meminfo}, given))

    return read


def ask(words: str = "", model: str = "yolov9-s") -> JobRequest:
    return replace(make_request("train", words.split(), variables={}), model=model, model_source="default")


def gpu_needs(plan: Plan) -> dict[str, int]:
    budget = next(budget for budget in plan.budgets if budget.resource == "GPU memory")
    return {need.what: need.size_bytes for need in budget.needs}


def test_two_cpus_cannot_feed_an_h200_so_it_decodes(facts_of: FactsOf) -> None:
    request = ask("--decode auto")
    plan = make_plan(facts_of(2, H200), request)
    assert plan.value("decode") == "gpu"
    assert "1 x 250 samples/s, 1123 are what yolov9-s takes on an H200" in plan["decode"].reason
    assert planned_settings(plan, request)["decode"] == "gpu"


def test_without_being_asked_the_plan_leaves_decoding_to_the_cpu(facts_of: FactsOf) -> None:
    plan = make_plan(facts_of(2, H200), ask())
    assert (plan.value("decode"), plan["decode"].source) == ("cpu", "default")


@pytest.mark.parametrize(
    ("cpus", "gpu", "words", "reason"),
    [
        (8, H200, "--decode auto", "loader processes are enough"),
        (2, H200, "--decode auto --cache ram", "keeps what the CPU has decoded"),
        (2, {**H200, "capability": [8, 6]}, "--decode auto", "no JPEG decoder in hardware"),
        (2, {**H200, "mig": True, "uuid": "MIG-x"}, "--decode auto", "no JPEG decoder in hardware"),
        (2, {**H200, "total": 8 * GIB, "free": 8 * GIB}, "--decode auto", "would take"),
        (2, {**H200, "free": 8 * GIB}, "--decode auto", "would take"),
        (2, H200, "--decode auto --gpu-share 0.05", "would take"),
        (2, H200, "--decode cpu", "asked for"),
    ],
)
def test_the_cpu_decodes_for_a_reason_that_is_said(
    facts_of: FactsOf, cpus: int, gpu: dict[str, Any], words: str, reason: str
) -> None:
    plan = make_plan(facts_of(cpus, gpu), ask(words))
    assert plan.value("decode") == "cpu"
    assert reason in plan["decode"].reason
    assert "decoding" not in gpu_needs(plan)


def test_few_cpus_are_enough_for_a_slow_model(facts_of: FactsOf) -> None:
    assert pictures_per_s("yolov9-e") < 2 * SAMPLES_PER_CPU
    assert make_plan(facts_of(3, H200), ask("--decode auto", model="yolov9-e")).value("decode") == "cpu"


def test_decoding_counts_against_the_gpus_memory_and_not_against_the_hosts(facts_of: FactsOf) -> None:
    facts = facts_of(2, {**H200, "total": 9 * GIB, "free": 9 * GIB})
    on_gpu, on_cpu = (make_plan(facts, ask(f"--decode {where}")) for where in ("gpu", "cpu"))
    needed = gpu_needs(on_gpu)
    assert needed["decoding"] > 0
    assert needed["model"] == gpu_needs(on_cpu)["model"]
    assert on_gpu.value("batch_size") < on_cpu.value("batch_size")
    names = [[need.what for need in plan.budgets[0].needs] for plan in (on_gpu, on_cpu)]
    assert [("mosaic window" in name) for name in names] == [False, True]
    assert on_gpu.value("decode_again") is None


def test_pictures_that_can_stay_in_memory_are_not_decoded_on_the_gpu_again_and_again(facts_of: FactsOf) -> None:
    decisions = [
        make_plan(facts_of(3, H200), replace(ask("--decode auto"), training_pictures=pictures))["decode"]
        for pictures in (1000, 1001)
    ]
    assert [decision.value for decision in decisions] == ["cpu", "gpu"]
    assert "1000 pictures" in decisions[0].reason


@pytest.mark.parametrize("words", ["--decode gpu", "--decode gpu --device cpu"])
def test_decoding_on_a_gpu_that_is_not_there_is_refused(facts_of: FactsOf, words: str) -> None:
    gpus = [H200] if "cpu" in words else []
    with pytest.raises(UserError, match="--decode cpu") as error:
        make_plan(facts_of(2, *gpus), ask(words))
    assert error.value.exit_code == ExitCode.NO_GPU


def test_a_run_that_decoded_on_a_gpu_goes_on_where_there_is_none(facts_of: FactsOf) -> None:
    resumed = {"decode": Source(value="gpu", source="resumed run, --decode gpu")}
    request = replace(make_request("train", [], variables={}, resumed=resumed), model="yolov9-s")
    plan = make_plan(facts_of(2), request)
    assert (plan.value("decode"), plan["decode"].degraded) == ("cpu", True)
    assert planned_settings(plan, request)["decode"] == "cpu"
    assert make_plan(facts_of(2, H200), request).value("decode") == "gpu"


def test_a_cache_of_what_the_cpu_decodes_and_decoding_on_the_gpu_exclude_each_other(facts_of: FactsOf) -> None:
    with pytest.raises(UserError, match="one of them") as error:
        make_plan(facts_of(2, H200), ask("--decode gpu --cache disk"))
    assert error.value.remedy == "--decode gpu --cache off, or --decode cpu --cache disk"
