"""Files that a job names are found, or refused before anything starts."""

import json
import os
from pathlib import Path

import pytest

from entrypoint.inputs import resolve_inputs
from entrypoint.prepare import prepare_request
from entrypoint.request import JobRequest, make_request
from entrypoint.resume import epochs_left, find_run, interrupted_run, resumed_options, with_pictures_of_run
from yolov9.config.graph_names import known_graphs
from yolov9.config.settings import TrainSettings
from yolov9.errors import UserError


@pytest.fixture(autouse=True)
def _working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def resolved(command: str, argv: str, **variables: str) -> JobRequest:
    return resolve_inputs(make_request(command, argv.split(), variables=variables))


@pytest.mark.parametrize("cfg", ["yolov9-s", "yolov9-s.yaml", "models/detect/yolov9-s.yaml"])
def test_three_names_of_one_model(cfg: str) -> None:
    assert resolved("train", f"--cfg {cfg}").model == "yolov9-s"


@pytest.mark.parametrize("name", known_graphs())
def test_every_graph_and_the_narrow_form_are_known(name: str) -> None:
    assert resolved("train", f"--cfg {name}").model == name


def test_an_own_graph_file_is_taken(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("nc: 80\n")
    assert resolved("train", "--cfg mine.yaml").model == "mine"


def test_an_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(UserError) as caught:
        resolved("train", "--cfg yolov9-xl")
    assert all(name in caught.value.needed for name in known_graphs())


def test_a_file_that_is_no_graph_is_refused_before_the_trainer_starts(tmp_path: Path) -> None:
    (tmp_path / "yolov9-s.pt").touch()
    with pytest.raises(UserError, match="no graph file and no model"):
        resolved("train", "--cfg yolov9-s.pt")


def test_without_model_and_weights_it_is_yolov9_s() -> None:
    request = resolved("train", "")
    assert (request.model, request.settings.cfg) == ("yolov9-s", "yolov9-s")  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["yolov9-s.pt", "./yolov9-s.pt"])
def test_weights_are_looked_for_here_and_then_in_the_image(tmp_path: Path, name: str) -> None:
    image = tmp_path / "weights"
    image.mkdir()
    (image / "yolov9-s.pt").touch()
    assert resolved("detect", f"--weights {name}", YOLOV9_WEIGHTS_DIR=str(image)).settings.weights == str(
        image / "yolov9-s.pt"
    )
    (tmp_path / "yolov9-s.pt").touch()
    here = resolved("detect", f"--weights {name}", YOLOV9_WEIGHTS_DIR=str(image)).settings.weights
    assert Path(here).absolute() == tmp_path / "yolov9-s.pt"


def test_the_newest_best_checkpoint_is_the_default_and_its_plan_names_the_model(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "train" / "exp"
    (run / "weights").mkdir(parents=True)
    (run / "weights" / "best.pt").touch()
    (run / "plan.json").write_text(json.dumps({"decisions": [{"name": "model", "value": "yolov9-e"}]}))
    request = resolved("val", "")
    assert Path(request.settings.weights).absolute() == run / "weights" / "best.pt"  # type: ignore[union-attr]
    assert request.model == "yolov9-e"


def test_resume_takes_the_newest_run_and_what_it_was_asked_to_do(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "train" / "exp2"
    (run / "weights").mkdir(parents=True)
    (run / "weights" / "last.pt").touch()
    given = {"epochs": {"value": 9, "source": "--epochs 9"}, "name": {"value": "exp2", "source": "--name exp2"}}
    (run / "plan.json").write_text(json.dumps({"request": given}))
    assert find_run("auto", tmp_path / "runs" / "train") == (run, run / "weights" / "last.pt")
    assert find_run(str(run), tmp_path) == (run, run / "weights" / "last.pt")
    options = resumed_options(run)
    assert list(options) == ["epochs"]
    assert options["epochs"].source == "resumed run, --epochs 9"


def resumed(tmp_path: Path, given: dict[str, object], argv: str, **settings: object) -> JobRequest:
    """The request of a command that goes on with a run of 8 pictures a step, unless `settings` say otherwise."""
    request = {name: {"value": value, "source": f"--{name} {value}"} for name, value in given.items()}
    former = {"request": request, "settings": {"optimisation_batch": 8, "batch_size": 4, **settings}, "decisions": []}
    (tmp_path / "plan.json").write_text(json.dumps(former))
    asked = make_request("train", argv.split(), variables={}, resumed=resumed_options(tmp_path))
    return with_pictures_of_run(asked, tmp_path)


@pytest.mark.parametrize(
    ("given", "loaded", "argv", "pictures", "accumulate"),
    [
        ({"accumulate": 2}, 8, "--batch 2", 8, None),
        ({"accumulate": 2}, 8, "--batch 2 --accumulate 4", 8, 4),
        ({"optimisation_batch": 8}, 8, "--batch 2", 8, None),
        ({"optimisation_batch": 8}, 8, "--optimisation-batch 16 --batch 2", 8, None),
        ({}, 8, "--batch 2", 8, None),
        ({"batch_size": 4}, 4, "--accumulate 4", 8, 4),
    ],
)
def test_p18_the_pictures_of_a_step_stay_those_of_the_run(
    tmp_path: Path, given: dict[str, object], loaded: int, argv: str, pictures: int, accumulate: int | None
) -> None:
    request = resumed(tmp_path, given, argv, batch_size=loaded)
    assert isinstance(request.settings, TrainSettings)
    assert (request.settings.optimisation_batch, request.settings.accumulate) == (pictures, accumulate)
    assert request.was_given("optimisation_batch")
    refused = [note for note in request.notes if "refused, the run was started with 8" in note]
    assert len(refused) == ("--optimisation-batch" in argv)


def test_a_run_of_passes_with_a_loss_of_their_own_stays_one(tmp_path: Path) -> None:
    assert not resumed(tmp_path, {"batch_size": 4}, "--batch 2").was_given("optimisation_batch")


def test_batches_that_a_growing_step_counts_stay_those_of_the_run(tmp_path: Path) -> None:
    given = {"batch_size": 8, "dynamic_accumulate": "1:3"}
    assert resumed(tmp_path, given, "--batch 2", batch_size=8, dynamic_accumulate="1:3").passes_of_run == 8
    with pytest.raises(UserError, match="a run with 8 pictures at a time"):
        resumed(tmp_path, given, "--batch 16", batch_size=8, dynamic_accumulate="1:3")


def test_a_batch_above_the_pictures_of_a_step_is_refused_when_a_run_goes_on(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a run with 8 pictures") as caught:
        resumed(tmp_path, {"accumulate": 2}, "--batch 16")
    assert caught.value.remedy == "--batch 8, or less"


def test_a_run_goes_on_from_another_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for split in ("train", "val"):
        (tmp_path / "set" / split).mkdir(parents=True)
    (tmp_path / "set" / "data.yaml").write_text("train: train\nval: val\nnames: [a]\n")
    run = tmp_path / "exp"
    (run / "weights").mkdir(parents=True)
    (run / "weights" / "last.pt").touch()
    first, _ = prepare_request("train", ["--data", "set/data.yaml"])
    (run / "plan.json").write_text(json.dumps({"request": first.as_dict(), "settings": vars(first.settings)}))
    monkeypatch.chdir("/")
    request, _ = prepare_request("train", ["--resume", str(run)])
    assert isinstance(request.settings, TrainSettings)
    assert request.settings.data == str(tmp_path / "set" / "data.yaml")


def test_a_run_goes_on_without_the_files_that_its_checkpoint_holds(tmp_path: Path) -> None:
    run = tmp_path / "exp"
    (run / "weights").mkdir(parents=True)
    (run / "weights" / "last.pt").touch()
    gone = {"cfg": "gone.yaml", "hyp": "gone.yaml", "weights": "gone.pt", "epochs": 9}
    given = {name: {"value": value, "source": f"--{name} {value}"} for name, value in gone.items()}
    decisions = [{"name": "model", "value": "gone"}, {"name": "cache", "value": "ram"}]
    (run / "plan.json").write_text(json.dumps({"request": given, "decisions": decisions}))
    request, run_dir = prepare_request("train", ["--resume", str(run)])
    assert run_dir == run
    assert (request.model, request.model_source, request.cache_of_run) == ("gone", "resumed run", "ram")
    assert (request.settings.weights, request.source("epochs")) == ("", "resumed run, --epochs 9")


def test_continue_finds_the_checkpoint_of_the_run_or_of_the_generation_before(tmp_path: Path) -> None:
    weights = tmp_path / "exp" / "weights"
    weights.mkdir(parents=True)
    assert interrupted_run(tmp_path / "exp") == ""
    (weights / "last-previous.pt").touch()
    assert interrupted_run(tmp_path / "exp") == str(weights / "last.pt")
    assert find_run(str(weights / "last.pt"), tmp_path) == (tmp_path / "exp", weights / "last.pt")


def test_the_newest_run_may_have_only_the_generation_before(tmp_path: Path) -> None:
    older, newer = tmp_path / "a" / "weights" / "last.pt", tmp_path / "b" / "weights" / "last-previous.pt"
    for age_s, file in ((100, older), (0, newer)):
        file.parent.mkdir(parents=True)
        file.touch()
        os.utime(file, (1e9 - age_s, 1e9 - age_s))
    assert find_run("auto", tmp_path) == (tmp_path / "b", newer.with_name("last.pt"))


@pytest.mark.parametrize(("rows", "left"), [(0, (0, 5)), (3, (3, 5)), (5, None)])
def test_a_run_tells_how_many_epochs_it_has_left(tmp_path: Path, rows: int, left: tuple[int, int] | None) -> None:
    assert epochs_left(tmp_path) is None
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "last.pt").touch()
    assert epochs_left(tmp_path) is None
    (tmp_path / "plan.json").write_text(json.dumps({"settings": {"epochs": 5}}))
    (tmp_path / "results.csv").write_text("epoch\n" + "".join(f"{number}\n" for number in range(rows)))
    assert epochs_left(tmp_path) == left


def test_the_source_of_an_option_stays_short_after_several_resumptions(tmp_path: Path) -> None:
    given = {"epochs": {"value": 9, "source": "resumed run, --epochs 9"}}
    (tmp_path / "plan.json").write_text(json.dumps({"request": given}))
    assert resumed_options(tmp_path)["epochs"].source == "resumed run, --epochs 9"


@pytest.mark.parametrize("wanted", ["auto", "nowhere/last.pt"])
def test_nothing_to_resume(tmp_path: Path, wanted: str) -> None:
    with pytest.raises(UserError, match=r"last\.pt"):
        find_run(wanted, tmp_path / "runs" / "train")


def test_a_source_that_needs_no_file_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "w.pt").touch()
    for source in ("0", "rtsp://camera/stream"):
        assert resolved("detect", f"--weights w.pt --source {source}").settings.source == source  # type: ignore[union-attr]
