"""Merging of defaults, YAML, environment and command line; spellings; types."""

from pathlib import Path

import pytest

from entrypoint.options import nearest
from entrypoint.request import JobRequest, Source, make_request
from yolov9.config.settings import TrainSettings
from yolov9.errors import UserError


def train(argv: list[str], **variables: str) -> JobRequest:
    return make_request("train", argv, variables=variables)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text("epochs: 7\nbatch: 8\nclose-mosaic: 2\nrect: true\nresume: false\nfreeze: [1, 2]\n")
    return file


def test_defaults_are_the_lowest_layer() -> None:
    request = train([])
    assert (request.settings.seed, request.source("seed"), request.was_given("seed")) == (0, "default", False)


def test_each_layer_wins_over_the_one_below(config: Path) -> None:
    words = ["--config", str(config)]
    assert train(words).settings.epochs == 7  # type: ignore[union-attr]
    assert train(words, YOLOV9_EPOCHS="8").settings.epochs == 8  # type: ignore[union-attr]
    assert train([*words, "--epochs", "9"], YOLOV9_EPOCHS="8").settings.epochs == 9  # type: ignore[union-attr]


def test_every_value_knows_its_source(config: Path) -> None:
    request = train(["--config", str(config), "--img", "320"], YOLOV9_SEED="3")
    assert request.source("epochs") == f"{config} epochs"
    assert request.source("seed") == "YOLOV9_SEED=3"
    assert request.source("imgsz") == "--img 320"


def test_yaml_takes_flag_spellings_and_yaml_types(config: Path) -> None:
    settings = train(["--config", str(config)]).settings
    values = [getattr(settings, name) for name in ("batch_size", "close_mosaic", "rect", "resume", "freeze")]
    assert values == [8, 2, True, "", [1, 2]]


@pytest.mark.parametrize(
    ("text", "words"),
    [("epochz: 3", "the nearest is epochs"), ("- a\n", "not a mapping"), ("a: [", "job.yaml"), ("epochs: x", "'x'")],
)
def test_yaml_that_cannot_be_used_names_the_file_and_the_trouble(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        train(["--config", str(file)])
    assert words in str(caught.value)
    assert str(file) in str(caught.value)


def test_an_unknown_variable_is_said_and_one_of_another_command_is_not() -> None:
    request = make_request("detect", [], variables={"YOLOV9_EPOCHS": "3", "YOLOV9_SAVE_TEXT": "1"})
    assert len(request.notes) == 1
    assert "YOLOV9_SAVE_TXT" in request.notes[0]


@pytest.mark.parametrize(("word", "value"), [("1", True), ("true", True), ("no", False), ("", False), ("Off", False)])
def test_switches_from_variables(word: str, value: bool) -> None:
    assert train([], YOLOV9_RECT=word).settings.rect is value  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--epochs", "three"], "one whole number"),
        (["--optimizer", "Adagrad"], "SGD"),
        (["--epoch", "3"], "--epochs"),
        (["--epochs"], "expected one argument"),
        (["data.yaml"], "stands alone"),
        (["--cache", "floppy"], "off, ram, disk"),
    ],
)
def test_mistakes_on_the_command_line_say_what_is_needed(argv: list[str], words: str) -> None:
    with pytest.raises(UserError) as caught:
        train(argv)
    assert words in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_pattern_that_the_shell_has_replaced_is_answered_with_quotes() -> None:
    with pytest.raises(UserError) as caught:
        make_request("detect", ["--source", "a.jpg", "b.jpg"], variables={})
    assert "quotes" in caught.value.needed
    assert caught.value.remedy == "--source 'FOLDER/*.jpg'"


def test_spellings_with_underscores_are_taken() -> None:
    settings = train(["--close_mosaic=3", "--batch_size", "4", "--exist_ok"]).settings
    assert (settings.close_mosaic, settings.batch_size, settings.exist_ok) == (3, 4, True)  # type: ignore[union-attr]


def test_several_picture_sizes_mean_the_larger_and_several_checkpoints_are_refused() -> None:
    assert make_request("detect", ["--img", "480", "640"], variables={}).settings.imgsz == 640
    with pytest.raises(UserError, match="one value"):
        make_request("detect", ["--weights", "a.pt", "b.pt"], variables={})


def test_values_of_a_resumed_run_lie_below_everything_that_is_said_now() -> None:
    resumed = {"epochs": Source(value=50, source="resumed run, --epochs 50"), "seed": Source(value=4, source="x")}
    request = make_request("train", ["--epochs", "60"], variables={}, resumed=resumed)
    assert (request.settings.epochs, request.settings.seed) == (60, 4)  # type: ignore[union-attr]


def test_a_variable_that_must_be_a_number_is_named() -> None:
    with pytest.raises(UserError, match="OMP_NUM_THREADS"):
        train([], OMP_NUM_THREADS="many")


@pytest.mark.parametrize(("word", "near"), [("trian", "train"), ("zzz", None)])
def test_nearest_word(word: str, near: str | None) -> None:
    assert nearest(word, ["train", "val"]) == near


@pytest.mark.parametrize("text", ["data: {a: b}", "name: [a, b]", "config: other.yaml"])
def test_yaml_with_a_structure_or_another_file_in_it_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=text.partition(":")[0]):
        train(["--config", str(file)])


def test_values_of_a_plan_that_was_damaged_or_edited_are_checked_as_all_others() -> None:
    with pytest.raises(UserError, match="resumed run"):
        make_request("train", [], variables={}, resumed={"epochs": Source(value=["a"], source="resumed run, --epochs")})
    older = {"gone": Source(value=1, source="resumed run, --gone"), "freeze": Source(value=[3], source="x")}
    request = make_request("train", [], variables={}, resumed=older)
    assert isinstance(request.settings, TrainSettings)
    assert (request.settings.freeze, "gone" in request.given) == ([3], False)


@pytest.mark.parametrize(
    ("words", "variables", "remedy"),
    [
        (["--epochs", "x"], {}, "--epochs 100"),
        ([], {"YOLOV9_EPOCHS": "x"}, "YOLOV9_EPOCHS=100"),
        ([], {"YOLOV9_OPTIMIZER": "x"}, "YOLOV9_OPTIMIZER=SGD"),
    ],
)
def test_the_remedy_is_typed_where_the_value_was(words: list[str], variables: dict[str, str], remedy: str) -> None:
    with pytest.raises(UserError) as caught:
        train(words, **variables)
    assert caught.value.remedy == remedy
