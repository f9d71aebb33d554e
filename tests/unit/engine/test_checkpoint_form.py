"""A checkpoint that was changed by hand is refused with the name of what is wrong."""

import copy
from pathlib import Path
from typing import Any

import pytest

from yolov9.engine.checkpoint import read_training_checkpoint
from yolov9.engine.checkpoint_form import misfit


@pytest.fixture(scope="module")
def good(finished_run: Path) -> dict[str, Any]:
    return read_training_checkpoint(finished_run / "weights" / "last.pt")


def test_what_a_run_writes_has_its_form(good: dict[str, Any]) -> None:
    assert misfit(good) is None


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("training", "progress", "epoch"), "3", "it.training.progress.epoch is a str"),
        (("training", "progress", "rows"), [["0"], [1]], "it.training.progress.rows[1][0] is a int"),
        (("training", "optimizer", "state"), [], "it.training.optimizer.state is not a mapping of names"),
        (("training", "settings", "imgsz"), None, "its setting imgsz is a NoneType"),
        (("model",), {"a": 1}, "it.model.a is a int"),
        (("names",), {0: "a"}, "it.names is not a list"),
    ],
)
def test_what_does_not_fit_is_named(good: dict[str, Any], path: tuple[str, ...], value: Any, said: str) -> None:
    changed = copy.deepcopy(good)
    place = changed
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    assert misfit(changed) == said


def test_settings_of_an_older_version_need_not_be_there(good: dict[str, Any]) -> None:
    older = copy.deepcopy(good)
    del older["training"]["settings"]["save_minutes"]
    assert misfit(older) is None
