"""What a plan says beside its values: tables, reasons, strictness, settings for the trainer."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from entrypoint.host import HostFacts
from entrypoint.plan import Plan, make_plan, planned_settings
from entrypoint.request import JobRequest, make_request
from entrypoint.table import plan_table
from yolov9.config.settings import FIND_FASTEST, FIND_LARGEST
from yolov9.errors import UserError

GIB = 1 << 30
MIB = 1 << 20
A10G = {"name": "NVIDIA A10G", "total": 24 * GIB, "free": 23 * GIB, "capability": [8, 6]}


FactsOf = Callable[..., HostFacts]


def ask(argv: str = "", command: str = "train", variables: Mapping[str, str] | None = None, **more: Any) -> JobRequest:
    request = make_request(command, argv.split(), variables=variables or {})
    return replace(request, model="yolov9-s", model_source="default", **more)


def needs(plan: Plan, resource: str) -> dict[str, int]:
    budget = next(budget for budget in plan.budgets if budget.resource == resource)
    return {need.what: need.size_bytes for need in budget.needs}


def test_p02_the_ring_grows_with_the_job_and_not_with_shm(facts_of: FactsOf) -> None:
    request = ask("--img 1280 --batch 64 --workers 16 --prefetch 4")
    small = make_plan(facts_of(64, 32, shm={"size": 2 * GIB}, gpus=[A10G], driver="580.65"), request)
    large = make_plan(facts_of(64, 32, shm={"size": 32 * GIB}, gpus=[A10G], driver="580.65"), request)
    ring = 4 * 64 * 1280 * 1280 * 3
    for plan in (small, large):
        assert needs(plan, "memory")["ring"] == ring
        assert needs(plan, "memory")["validation ring"] == 2 * ring
        assert needs(plan, "/dev/shm") == {"loader": 0}
        assert plan.value("prefetch") == 4


def test_p02_short_memory_takes_slots_then_workers(facts_of: FactsOf) -> None:
    request = ask("--img 1280 --batch 64 --workers 16")
    plan = make_plan(facts_of(6, 32, gpus=[A10G], driver="580.65"), request)
    assert plan.value("prefetch") == 2
    assert plan.value("workers") < 16
    assert {decision.name for decision in plan.degraded} >= {"prefetch", "workers"}


def test_p10_the_drivers_free_memory_counts_and_holders_are_named(facts_of: FactsOf) -> None:
    busy = {
        **A10G,
        "total": 23 * GIB,
        "free": 10 * GIB,
        "processes": [{"pid": 41, "used": 13 * GIB, "name": "python"}],
        "utilisation": 97,
    }
    facts = facts_of(gpus=[busy], driver="580.65")
    plan = make_plan(facts, ask())
    assert plan.value("batch_size") == 16
    assert plan.value("neighbours") == "13 GiB in use on GPU 0"
    reason = plan["neighbours"].reason
    assert "pid 41 python 13 GiB; 10 GiB are free, of which this job takes about " in reason
    assert reason.endswith("97 % busy before the start: saturated, running in turn is about as fast")


@pytest.mark.parametrize(
    ("free", "utilisation", "words"),
    [
        (23.5, 3, None),
        (14, None, "not visible from here; 14 GiB are free, of which this job takes about"),
        (14, None, "how busy it is cannot be read"),
        (14, 40, "40 % busy before the start"),
    ],
)
def test_p10_a_neighbour_that_a_container_cannot_see_shows_by_its_memory(
    facts_of: FactsOf, free: float, utilisation: int | None, words: str | None
) -> None:
    gpu = {**A10G, "free": int(free * GIB), "utilisation": utilisation}
    plan = make_plan(facts_of(gpus=[gpu], driver="580.65"), ask())
    said = [decision for decision in plan.decisions if decision.name == "neighbours"]
    assert bool(said) == (words is not None)
    assert not said or str(words) in said[0].reason


def test_p21_share_minus_overhead_and_the_limit_is_called_soft(facts_of: FactsOf) -> None:
    gpu = {"name": "NVIDIA RTX A4000", "total": 16 * GIB, "free": 16 * GIB, "capability": [8, 6]}
    plan = make_plan(facts_of(gpus=[gpu], driver="580.65"), ask("--gpu-share 0.5 --jobs 2"))
    budget = next(budget for budget in plan.budgets if budget.resource == "GPU memory")
    assert budget.available_bytes == 8 * GIB
    assert budget.needed_bytes <= 8 * GIB
    assert "soft limit" in budget.source


def test_p21_shares_above_the_whole_are_said(facts_of: FactsOf) -> None:
    plan = make_plan(facts_of(gpus=[A10G], driver="580.65"), ask("--gpu-share 0.7 --jobs 2"))
    assert any("more than the whole GPU" in note for note in plan.notes)


def test_p37_training_on_the_cpu_for_lack_of_a_gpu_is_loud(facts_of: FactsOf) -> None:
    plan = make_plan(facts_of(), ask())
    assert "NO GPU IS VISIBLE" in plan["device"].reason
    assert plan["device"].degraded


def test_p04_every_value_names_its_limit(facts_of: FactsOf) -> None:
    plan = make_plan(facts_of(cpus=4), ask("--workers 8"))
    assert (plan["workers"].value, plan["workers"].source) == (3, "affinity of this process")
    assert "8 asked for" in plan["workers"].reason


def test_p05_a_users_thread_count_reaches_the_trainer(facts_of: FactsOf) -> None:
    assert make_plan(facts_of(), ask(variables={"OMP_NUM_THREADS": "3"})).environment["OMP_NUM_THREADS"] == "3"
    assert make_plan(facts_of(cpus=5), ask()).environment["OMP_NUM_THREADS"] == "5"


@pytest.mark.parametrize(("pictures", "value"), [(1000, "ram"), (100_000, "ram"), (1_000_000, "off")])
def test_p07_the_ram_cache_keeps_what_fits_and_is_refused_when_that_is_little(
    facts_of: FactsOf, pictures: int, value: str
) -> None:
    plan = make_plan(facts_of(64), ask("--cache ram", pictures=pictures))
    assert plan.value("cache") == value
    assert plan["cache"].degraded == (pictures > 1000)
    assert f"{pictures} pictures need" in plan["cache"].reason
    assert ("% of the pictures" in plan["cache"].reason) == (pictures == 100_000)
    if value == "ram":
        budget = next(budget for budget in plan.budgets if budget.resource == "memory")
        assert (
            plan.value("cache_limit_gb") * 1e9 + budget.needed_bytes - needs(plan, "memory")["cache"] <= 64 * 0.9 * GIB
        )


@pytest.mark.parametrize(
    ("memory_gib", "pictures", "words", "value"),
    [
        (64, 1000, "", "ram"),
        (64, 1001, "", "off"),
        (64, None, "", "off"),
        (6, 1000, "--workers 8", "off"),
        (64, 1000, "--cache off", "off"),
        (64, 1000, "--cache-limit 10", "ram"),
        (64, 1000, "--cache-limit 0.1", "off"),
    ],
)
def test_pictures_of_a_small_data_set_stay_in_memory_that_is_plenty(
    facts_of: FactsOf, memory_gib: float, pictures: int | None, words: str, value: str
) -> None:
    both = None if pictures is None else pictures + 300
    plan = make_plan(facts_of(memory_gib), ask(words, pictures=both, training_pictures=pictures))
    assert plan.value("cache") == value
    assert not plan["cache"].degraded
    assert not any("--cache-limit" in note for note in plan.notes)
    assert ("cache" in needs(plan, "memory")) == (value == "ram")


@pytest.mark.parametrize(
    ("memory_gib", "former", "value"),
    [(9.5, "", "off"), (9.5, "ram", "ram"), (64, "off", "off"), (6, "ram", "off")],
)
def test_a_run_that_goes_on_has_the_cache_that_it_had_if_it_fits(
    facts_of: FactsOf, memory_gib: float, former: str, value: str
) -> None:
    request = ask("--workers 8", pictures=1300, training_pictures=1000, cache_of_run=former)
    assert make_plan(facts_of(memory_gib), request).value("cache") == value


def test_many_pictures_of_validation_are_not_kept_beside_few_of_training(facts_of: FactsOf) -> None:
    plan = make_plan(facts_of(1024), ask(pictures=51_000, training_pictures=1000))
    assert needs(plan, "memory")["cache"] == 2000 * 640 * 640 * 3
    assert plan.value("cache_limit_gb") == round(2000 * 640 * 640 * 3 / 1e9, 3)


@pytest.mark.parametrize(("pictures", "counted"), [(1000, False), (1001, True), (None, True)])
def test_a_small_data_set_needs_no_mosaic_window(facts_of: FactsOf, pictures: int | None, counted: bool) -> None:
    plan = make_plan(facts_of(64), replace(ask(), training_pictures=pictures))
    assert ("mosaic window" in needs(plan, "memory")) == counted


def test_cache_limit_is_the_users_when_memory_allows_it(facts_of: FactsOf) -> None:
    plan = make_plan(facts_of(64), ask("--cache ram --cache-limit 5", pictures=10_000))
    assert plan.value("cache_limit_gb") == 5
    assert needs(plan, "memory")["cache"] == 5_000_000_000
    assert "41% of the pictures" in plan["cache"].reason


def test_ranks_divide_the_cache(facts_of: FactsOf) -> None:
    gpus = [{**A10G, "uuid": "GPU-a"}, {**A10G, "uuid": "GPU-b"}]
    request = ask("--cache ram --cache-limit 5 --device 0,1", pictures=10_000)
    assert make_plan(facts_of(64, gpus=gpus, driver="580.65"), request).value("cache_limit_gb") == 2.5


@pytest.mark.parametrize(("words", "fixed"), [("", False), ("--workers 3", True), ("--fixed-workers", True)])
def test_a_given_number_of_workers_stays(facts_of: FactsOf, words: str, fixed: bool) -> None:
    assert make_plan(facts_of(cpus=16), ask(words)).value("fixed_workers") is fixed


def test_short_memory_takes_the_pictures_of_the_window_before_workers(facts_of: FactsOf) -> None:
    """8 GiB, 1280 px: the window would take 2.7 GiB."""
    request = ask("--img 1280 --batch 16 --workers 12")
    gpu = {"gpus": [A10G], "driver": "580.65"}
    short, ample = (make_plan(facts_of(memory, 16, **gpu), request) for memory in (7, 64))
    assert (short.value("decode_again"), ample.value("decode_again")) == (True, False)
    assert short["decode_again"].degraded
    assert "mosaic window" not in needs(short, "memory")
    assert short.value("workers") == ample.value("workers") == 12
    assert short.budgets[0].fits


@pytest.mark.parametrize(("words", "counted"), [("", True), ("--mosaic-window 0", False), ("--rect", False)])
def test_the_mosaic_window_counts_against_the_memory(facts_of: FactsOf, words: str, counted: bool) -> None:
    assert ("mosaic window" in needs(make_plan(facts_of(64), ask(words)), "memory")) == counted


def test_strict_stops_where_something_gives_way(facts_of: FactsOf) -> None:
    with pytest.raises(UserError, match="--strict"):
        make_plan(facts_of(cpus=4), ask("--workers 8 --device cpu --strict"))


def test_strict_stops_where_the_memory_is_estimated_not_to_suffice(facts_of: FactsOf) -> None:
    words = "--device cpu --img 64 --batch 1 --prefetch 2 --workers 1 --mosaic-window 0"
    assert not make_plan(facts_of(0.8), ask(words)).budgets[0].fits
    with pytest.raises(UserError, match="found:  memory: "):
        make_plan(facts_of(0.8), ask(f"{words} --strict"))


def test_memory_in_which_no_model_can_be_trained_is_refused(facts_of: FactsOf) -> None:
    with pytest.raises(UserError, match="docker run --memory"):
        make_plan(facts_of(0.45), ask("--device cpu"))
    assert make_plan(facts_of(0.45), ask("--device cpu", "val")).value("workers") == 1


def test_strict_goes_on_when_all_is_as_asked(facts_of: FactsOf) -> None:
    assert make_plan(facts_of(cpus=16), ask("--workers 2 --device cpu --strict")).degraded == ()


def test_two_ranks_without_room_in_shm_use_other_transports(facts_of: FactsOf) -> None:
    gpus = [{**A10G, "uuid": "GPU-a"}, {**A10G, "uuid": "GPU-b"}]
    facts = facts_of(gpus=gpus, driver="580.65", shm={"size": 16 * MIB})
    plan = make_plan(facts, ask("--device 0,1"))
    assert plan.environment["NCCL_SHM_DISABLE"] == "1"
    assert any("NCCL" in note for note in plan.notes)


def test_a_slice_is_handed_over_by_uuid_and_cuda_counts_by_bus(facts_of: FactsOf) -> None:
    mig = {"name": "MIG 1g", "total": 10 * GIB, "capability": [8, 0], "uuid": "MIG-x", "mig": True}
    plan = make_plan(facts_of(gpus=[mig], driver="580.65"), ask())
    assert plan.environment["CUDA_VISIBLE_DEVICES"] == "MIG-x"
    assert plan.environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_a_cpu_job_hides_all_gpus_from_the_trainer(facts_of: FactsOf) -> None:
    plan = make_plan(facts_of(gpus=[A10G], driver="580.65"), ask("--device cpu"))
    assert plan.environment["CUDA_VISIBLE_DEVICES"] == ""


def test_settings_for_the_trainer_have_the_plans_values(facts_of: FactsOf) -> None:
    request = ask("--img 650 --epochs 3")
    settings = planned_settings(make_plan(facts_of(gpus=[A10G], driver="580.65"), request), request)
    expected = {"imgsz": 672, "epochs": 3, "device": "0", "amp": "bf16", "workers": 15, "cache": "off", "prefetch": 4}
    assert {name: settings[name] for name in expected} == expected
    assert settings["batch_size"] * (settings["optimisation_batch"] // settings["batch_size"]) == 64
    assert settings["accumulate"] is None, "the trainer divides the optimisation batch exactly"


def test_accumulation_that_was_asked_for_sets_the_optimisation_batch(facts_of: FactsOf) -> None:
    request = ask("--batch 16 --accumulate 2")
    settings = planned_settings(make_plan(facts_of(gpus=[A10G], driver="580.65"), request), request)
    assert (settings["optimisation_batch"], settings["batch_size"], settings["micro_batch"]) == (32, 32, 16)


@pytest.mark.parametrize(
    ("argv", "pictures", "start"),
    [("--batch 16 --dynamic-accumulate 1:4:50", 64, 16), ("--dynamic-accumulate 2:3", 192, 128)],
)
def test_the_pictures_of_a_growing_step_are_those_that_are_trained(
    facts_of: FactsOf, argv: str, pictures: int, start: int
) -> None:
    decision = make_plan(facts_of(gpus=[A10G], driver="580.65"), ask(argv))["optimisation_batch"]
    assert decision.value == pictures
    assert f"{start} pictures a step at the start" in decision.reason


def test_a_growing_step_of_a_resumed_run_counts_the_batches_of_the_run(facts_of: FactsOf) -> None:
    request = ask("--batch 2 --dynamic-accumulate 1:3 --device cpu", passes_of_run=8)
    plan = make_plan(facts_of(), request)
    settings = planned_settings(plan, request)
    assert (settings["batch_size"], settings["micro_batch"], plan.value("optimisation_batch")) == (8, 2, 24)


def test_a_batch_above_the_optimisation_batch_is_named_as_its_source(facts_of: FactsOf) -> None:
    request = ask("--batch 8 --optimisation-batch 4 --device cpu")
    decision = make_plan(facts_of(), request)["optimisation_batch"]
    assert (decision.value, decision.source) == (8, "--batch 8, more than the 4 of --optimisation-batch 4")


@pytest.mark.parametrize(
    ("argv", "loaded", "micro_batch"),
    [
        ("", 64, FIND_FASTEST),
        ("--batch -1", 64, FIND_LARGEST),
        ("--batch -1 --optimisation-batch 512", 512, FIND_LARGEST),
        ("--batch 16", 16, None),
        ("--batch 8 --accumulate 8", 64, 8),
        ("--batch 8 --gradient-accumulation-steps 2", 16, 8),
        ("--batch 24 --optimisation-batch 64", 64, 24),
    ],
)
def test_parts_of_a_step_are_loaded_together_unless_only_the_batch_is_given(
    facts_of: FactsOf, argv: str, loaded: int, micro_batch: int | None
) -> None:
    request = ask(argv)
    settings = planned_settings(make_plan(facts_of(gpus=[A10G], driver="580.65"), request), request)
    assert (settings["batch_size"], settings["micro_batch"], settings["accumulate"]) == (loaded, micro_batch, None)


def test_what_does_not_fit_a_cpu_is_loaded_as_asked_and_computed_in_parts(facts_of: FactsOf) -> None:
    request = ask("--batch 64")
    settings = planned_settings(make_plan(facts_of(4, 24), request), request)
    assert settings["batch_size"] == 64
    assert settings["micro_batch"] < 64


@pytest.mark.parametrize(("argv", "batch"), [("", 32), ("--half", 32), ("--batch 5", 5)])
def test_validation_batch(facts_of: FactsOf, argv: str, batch: int) -> None:
    plan = make_plan(facts_of(gpus=[A10G], driver="580.65"), ask(argv, "val"))
    assert plan.value("batch_size") == batch
    assert plan.value("accumulate") is None


def test_detection_needs_a_device_and_no_loader(facts_of: FactsOf) -> None:
    plan = make_plan(facts_of(), ask("--source x", "detect"))
    names = [decision.name for decision in plan.decisions]
    assert "device" in names
    assert not {"workers", "batch_size", "prefetch", "cache"} & set(names)


def test_the_plan_is_pure(facts_of: FactsOf) -> None:
    facts, request = facts_of(), ask()
    assert make_plan(facts, request) == make_plan(facts, request)


def test_the_table_and_the_data_say_the_same(facts_of: FactsOf) -> None:
    plan = make_plan(facts_of(), ask())
    text, data = plan_table(plan), json.loads(json.dumps(plan.as_dict()))
    for decision in data["decisions"]:
        assert decision["reason"] in text
        assert decision["source"] in text
    assert "\x1b" not in text


def test_a_picture_size_that_is_rounded_says_so(facts_of: FactsOf) -> None:
    rounded, fitting = (make_plan(facts_of(), ask(f"--img {size}"))["imgsz"] for size in (60, 64))
    assert rounded.value == fitting.value == 64
    assert rounded.reason == "60 is not a multiple of the stride 32, the next one is taken"
    assert "not a multiple" not in fitting.reason


def test_stages_decide_the_largest_size_and_the_epochs(facts_of: FactsOf) -> None:
    request = ask("--stages 320:20,640:60")
    plan = make_plan(facts_of(gpus=[A10G], driver="580.65"), request)
    settings = planned_settings(plan, request)
    assert (settings["imgsz"], settings["epochs"], plan["epochs"].source) == (640, 80, "--stages 320:20,640:60")


def test_parts_of_a_step_take_the_memory_of_one_part(facts_of: FactsOf) -> None:
    def trainer_bytes(argv: str) -> int:
        budget = next(b for b in make_plan(facts_of(4, 64), ask(argv)).budgets if b.resource == "memory")
        return next(need.size_bytes for need in budget.needs if need.what == "trainer")

    assert trainer_bytes("--batch 8 --accumulate 8") == trainer_bytes("--batch 8")
