"""Which settings a resumed run has, and what is said about them."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from yolov9.config.settings import TrainSettings
from yolov9.engine.plan_record import PLAN_FILE, note_refused
from yolov9.engine.resume import already_finished, merge_settings, nothing_left, recipe_of, refused_settings
from yolov9.errors import UserError

SAVED = TrainSettings(data="old.yaml", epochs=50, batch_size=16, optimizer="SGD", close_mosaic=5, workers=8, seed=3)


def merge(given: set[str] | None = None, **now: Any) -> tuple[TrainSettings, dict[str, str]]:
    settings, lines = merge_settings(asdict(SAVED), TrainSettings(**now), given)
    return settings, {line.split()[1]: line.split()[0] for line in lines}


def test_what_is_not_typed_is_kept() -> None:
    settings, said = merge()
    assert (settings.data, settings.epochs, settings.seed, settings.close_mosaic) == ("old.yaml", 50, 3, 5)
    assert {said[name] for name in ("data", "epochs", "seed", "close_mosaic")} == {"kept"}


def test_place_and_length_can_be_overridden() -> None:
    settings, said = merge(data="moved.yaml", epochs=80, patience=7)
    assert (settings.data, settings.epochs, settings.patience) == ("moved.yaml", 80, 7)
    assert said["data"] == said["epochs"] == said["patience"] == "overridden"


@pytest.mark.parametrize(
    ("name", "value"),
    [("optimizer", "AdamW"), ("imgsz", 320), ("hyp", "x.yaml"), ("cfg", "gelan-t"), ("seed", 9), ("cos_lr", True)],
)
def test_what_makes_the_run_is_refused(name: str, value: object) -> None:
    settings, said = merge(**{name: value})
    assert getattr(settings, name) == getattr(SAVED, name)
    assert said[name] == "refused"


def test_an_option_that_the_run_was_started_without_is_refused_in_plain_words() -> None:
    _, lines = merge_settings(asdict(SAVED), TrainSettings(mosaic_window=5))
    assert "refused     mosaic_window = 5: the run was started without it" in lines


def test_what_was_refused_does_not_stay_in_the_plan(tmp_path: Path) -> None:
    """The next `--resume` takes the plan's options for those that the run was started with."""
    asked, given = TrainSettings(rect=True, seed=9, epochs=80), {"rect", "seed", "epochs"}
    merged, _ = merge_settings(asdict(SAVED), asked, given)
    typed = {name: {"value": getattr(asked, name), "source": f"--{name}"} for name in given}
    (tmp_path / PLAN_FILE).write_text(json.dumps({"settings": asdict(asked), "request": typed}))
    note_refused(tmp_path, refused_settings(asked, merged, given))
    plan = json.loads((tmp_path / PLAN_FILE).read_text())
    assert {name: entry["value"] for name, entry in plan["request"].items()} == {"seed": 3, "epochs": 80}
    assert (plan["settings"]["rect"], plan["settings"]["seed"], plan["settings"]["epochs"]) == (False, 3, 80)


def test_a_default_that_is_typed_counts_as_typed() -> None:
    assert merge(given={"epochs"}, epochs=100)[0].epochs == 100
    assert merge(given=set(), epochs=100)[0].epochs == 50


def test_the_machine_is_taken_as_it_is_now() -> None:
    now = {"workers": 2, "device": "cpu", "amp": "off", "cache": "ram", "cache_limit_gb": 2.0, "prefetch": 2}
    settings, _ = merge(given=set(), **now)
    assert {name: getattr(settings, name) for name in now} == now


def test_what_out_of_memory_advises_is_taken() -> None:
    assert merge(checkpoint_activations=True)[0].checkpoint_activations


def test_another_batch_keeps_the_optimisation_batch_of_typed_accumulation() -> None:
    saved = asdict(replace(SAVED, accumulate=2))
    settings, _ = merge_settings(saved, TrainSettings(batch_size=8), {"batch_size"})
    assert (settings.batch_size, settings.accumulate, settings.optimisation_batch) == (8, None, 32)


def test_a_smaller_planned_batch_is_taken_and_a_larger_one_is_not() -> None:
    assert merge(given=set(), batch_size=8)[0].batch_size == 8
    assert merge(given=set(), batch_size=64)[0].batch_size == 16


@pytest.mark.parametrize(
    ("batch", "part", "planned", "planned_part", "typed", "line"),
    [
        (16, None, 16, None, True, "kept        batch_size = 16"),
        (16, None, 64, None, False, "kept        batch_size = 16"),
        (16, None, 8, None, True, "overridden  batch_size = 8 (was 16)"),
        (16, None, 8, None, False, "overridden  batch_size = 8 (was 16), what the plan for this machine gives"),
        (16, 4, 16, 4, True, "kept        batch_size = 16 in parts of 4"),
        (16, 4, 16, 2, True, "overridden  batch_size = 16 in parts of 2 (was 16 in parts of 4)"),
        (16, None, 16, 2, True, "overridden  batch_size = 16 in parts of 2 (was 16)"),
        (64, 0, 64, 0, False, "kept        batch_size = 64 in parts that are measured"),
    ],
)
def test_what_is_said_about_the_batch_is_what_is_done(
    batch: int, part: int | None, planned: int, planned_part: int | None, typed: bool, line: str
) -> None:
    saved = asdict(replace(SAVED, batch_size=batch, micro_batch=part))
    now = TrainSettings(batch_size=planned, micro_batch=planned_part)
    settings, lines = merge_settings(saved, now, {"batch_size"} if typed else set())
    assert [said for said in lines if "batch_size" in said] == [line]
    assert line.split(" = ")[1].split()[0] == str(settings.batch_size)
    assert settings.micro_batch == planned_part


def progress_of(epoch: int, *, finished: bool) -> dict[str, Any]:
    return {"training": {"progress": {"epoch": epoch, "finished": finished}, "settings": asdict(SAVED)}}


@pytest.mark.parametrize(
    ("epoch", "finished", "changes", "allowed"),
    [
        (20, False, {}, True),
        (50, True, {}, False),
        (50, True, {"epochs": 60}, True),
        (30, True, {}, False),
        (30, True, {"patience": 500}, True),
    ],
)
def test_only_a_run_with_something_left_is_resumed(
    epoch: int, finished: bool, changes: dict[str, Any], allowed: bool
) -> None:
    content = progress_of(epoch, finished=finished)
    assert nothing_left(content, replace(SAVED, **changes)) is not allowed


@pytest.mark.parametrize(("name", "value"), [("unheard_of", 1.0), ("lr0", -1.0)])
def test_a_recipe_of_another_version_is_no_file_to_correct(name: str, value: float) -> None:
    content = {"training": {"recipe": {name: value}}}
    with pytest.raises(UserError, match=name) as raised:
        recipe_of(content)
    assert "of the resumed run" in raised.value.found
    assert "--resume" in raised.value.remedy
    assert "correct" not in raised.value.remedy


def test_a_finished_run_is_told_how_to_go_on() -> None:
    error = already_finished(Path("/runs/my run/weights/last.pt"), progress_of(50, finished=True))
    assert error.found == "/runs/my run is finished: 50 of 50 epochs were trained"
    assert error.remedy == "--resume '/runs/my run' --epochs 60"
