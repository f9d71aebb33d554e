"""What is measured before the decision."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.host import read_facts
from entrypoint.request import JobRequest, make_request
from entrypoint.staging.facts import StageSurvey
from entrypoint.staging.files import find_files
from entrypoint.staging.survey import read_speed, survey_staging
from yolov9.config.environment import Environment

FORMER = "yolov9-stage-"


@pytest.fixture
def look(data: Path, tmp_path: Path) -> Callable[..., StageSurvey | None]:
    def survey(*words: str, clean: bool = False) -> StageSurvey | None:
        variables = {"TMPDIR": str(tmp_path), "YOLOV9_CACHE_DIR": str(tmp_path / "cache")}
        request: JobRequest = make_request("train", ["--data", str(data), *words], variables=variables)
        return survey_staging(request, read_facts(), clean=clean)

    return survey


Look = Callable[..., StageSurvey | None]


def test_a_place_that_is_asked_for_is_measured(look: Look, target: Path) -> None:
    measured = look("--stage", str(target))
    assert measured is not None
    assert measured.files == 22
    assert measured.size_bytes > 12 * 64 * 64
    (place,) = measured.targets
    assert place.free_bytes
    assert not place.holds_copy
    assert not place.problem


def test_off_and_the_drawn_data_set_need_no_measuring(look: Look) -> None:
    assert look("--stage", "off") is None
    assert look("--data", "") is None


@pytest.mark.parametrize("below", ["", "images", "images/train/deep"])
def test_a_place_in_the_data_set_is_refused(look: Look, data: Path, below: str) -> None:
    measured = look("--stage", str(data.parent / below))
    assert measured is not None
    assert measured.targets[0].problem


def test_a_place_whose_path_would_hide_the_labels_is_refused(look: Look, tmp_path: Path) -> None:
    measured = look("--stage", str(tmp_path / "images" / "fast"))
    assert measured is not None
    assert "labels" in measured.targets[0].problem


@pytest.mark.parametrize("clean", [False, True])
def test_left_overs_are_removed_before_the_space_is_measured_and_never_by_plan(
    look: Look, target: Path, clean: bool
) -> None:
    left = target / f"{FORMER}{os.getuid()}" / "0123"
    left.mkdir(parents=True)
    look("--stage", str(target), clean=clean)
    assert left.exists() != clean


def test_the_speed_of_reading_is_measured_in_a_short_time(data: Path) -> None:
    speed = read_speed(find_files(str(data), Environment()).entries)
    assert speed is not None
    assert speed > 0
    assert read_speed(()) is None
