"""cli/flags.json: every flag of the known scripts is accepted, with the same type; each other default has a reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from entrypoint.contradictions import check_request
from entrypoint.options import options_of
from entrypoint.request import SETTINGS, JobRequest, make_request
from yolov9.config.recipe import load_recipe
from yolov9.config.settings import FLAGS_WITHOUT_EFFECT

SCRIPTS = {
    "train": "train",
    "train_dual": "train",
    "val": "val",
    "val_dual": "val",
    "detect": "detect",
    "detect_dual": "detect",
}
OTHER_DEFAULTS = {
    "data": "without --data there is a data set of our own; the reference names a file that the user must have",
    "cfg": "the model follows the weights, else yolov9-s; the reference names a file that does not exist",
    "weights": "train starts from scratch; val and detect take the newest best.pt instead of a file nobody has",
    "source": "without --source a sample picture of our own is used",
    "hyp": "scratch-high by name; the values are the same",
    "batch_size": "the plan finds what the memory allows",
    "workers": "the plan finds what the CPU limit allows",
    "cache": '"off" instead of None',
    "resume": '"" instead of False',
    "project": '"" means runs/COMMAND, as in the reference',
    "imgsz": "one number instead of a list of one",
}
SAMPLE_VALUES = {"str": "x", "int": "3", "float": "0.5", None: "x"}
PICKY = {"optimizer": "Adam", "cache": "ram", "task": "val", "device": "cpu"}


@pytest.fixture(scope="module")
def flags(parity_dir: Path) -> dict[str, list[dict[str, Any]]]:
    content: dict[str, list[dict[str, Any]]] = json.loads((parity_dir / "cli" / "flags.json").read_text())
    return content


def _request(command: str, words: list[str]) -> JobRequest:
    return make_request(command, words, variables={})


def _words(entry: dict[str, Any], flag: str) -> list[str]:
    return [flag] if entry["is_switch"] else [flag, PICKY.get(entry["dest"], SAMPLE_VALUES[entry["type"]])]


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_flag_is_accepted_with_its_type_and_either_stored_or_answered(
    script: str, flags: dict[str, list[dict[str, Any]]]
) -> None:
    command = SCRIPTS[script]
    options = options_of([SETTINGS[command]])
    converters = {"int": int, "float": float}
    for entry in flags[script]:
        for flag in entry["flags"]:
            words = _words(entry, flag)
            request = _request(command, words)
            if flag in FLAGS_WITHOUT_EFFECT and entry["dest"] not in options:
                assert [line for line in request.notes if line.startswith(flag)], flag
                continue
            value = getattr(request.settings, entry["dest"])
            expected = True if entry["is_switch"] else converters.get(entry["type"], str)(words[1])
            assert value in (expected, [expected]), flag


@pytest.mark.parametrize("script", SCRIPTS)
def test_defaults_are_the_same_except_where_a_reason_is_listed(
    script: str, flags: dict[str, list[dict[str, Any]]]
) -> None:
    options = options_of([SETTINGS[SCRIPTS[script]]])
    for entry in flags[script]:
        name = entry["dest"]
        if name in options and options[name].default != entry["default"]:
            assert name in OTHER_DEFAULTS, f"{name}: {options[name].default!r}, reference {entry['default']!r}"


def test_the_default_recipe_is_the_reference_file_by_another_name(flags: dict[str, list[dict[str, Any]]]) -> None:
    reference = next(entry["default"] for entry in flags["train_dual"] if entry["dest"] == "hyp")
    assert load_recipe(reference) == load_recipe(_request("train", []).settings.hyp)  # type: ignore[union-attr]


@pytest.mark.parametrize("script", SCRIPTS)
def test_values_without_an_argument_mean_the_same(script: str, flags: dict[str, list[dict[str, Any]]]) -> None:
    said = {"resume": "auto"}
    for entry in flags[script]:
        if entry["nargs"] == "?" and entry["flags"][0] not in FLAGS_WITHOUT_EFFECT:
            value = getattr(_request(SCRIPTS[script], [entry["flags"][0]]).settings, entry["dest"])
            assert value == said.get(entry["dest"], entry["const"])


@pytest.mark.parametrize("script", SCRIPTS)
def test_choices_are_the_same(script: str, flags: dict[str, list[dict[str, Any]]]) -> None:
    for entry in flags[script]:
        for choice in entry["choices"] or []:
            assert getattr(_request(SCRIPTS[script], [entry["flags"][0], choice]).settings, entry["dest"]) == choice


def test_flags_with_nothing_left_to_do_say_so() -> None:
    lines = check_request(_request("train", ["--noautoanchor", "--label-smoothing", "0.1"]))
    assert [line.split(":")[0] for line in lines] == ["--autoanchor, --noautoanchor", "--label-smoothing"]
