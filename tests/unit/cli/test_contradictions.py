"""Options that contradict each other: refused, or one line that says which of them gives way."""

from dataclasses import replace

import pytest

from entrypoint.contradictions import check_request
from entrypoint.request import make_request
from yolov9.config.picture_size import rounded_size
from yolov9.errors import UserError


def lines(argv: str, command: str = "train") -> str:
    return "\n".join(check_request(make_request(command, argv.split(), variables={})))


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--cache ram --rect --project runs/train", "mosaic, mixup and shuffling are off"),
        ("--rect --close-mosaic 5", "--rect turns mosaic off from the start"),
        ("--epochs 10 --close-mosaic 15", "mosaic is never on"),
        ("--stages 64:4,96:6 --close-mosaic 15", "not less than 10 epochs"),
        ("--autoanchor", "no anchors"),
        ("--noautoanchor", "no anchors"),
        ("--amp", "the default"),
        ("--img 650", "672 is used"),
        ("--resume x.pt --weights y.pt", "nothing to do with --resume"),
        ("--resume x.pt --continue", "nothing to do with --resume"),
        ("--cache-limit 5", "nothing to do without --cache"),
        ("--nosave --save-period 3", "nothing to do with --nosave"),
        ("--noval --patience 3", "nothing to do with --noval"),
    ],
)
def test_one_line_says_what_gives_way(argv: str, words: str) -> None:
    assert words in lines(argv)


def test_a_run_that_continue_goes_on_with_is_not_explained_as_if_resume_were_given() -> None:
    request = make_request("train", ["--continue", "--weights", "y.pt"], variables={})
    going_on = replace(request, settings=replace(request.settings, resume="runs/train/exp/weights/last.pt"))
    assert check_request(going_on) == ()


@pytest.mark.parametrize(("argv", "words"), [("--augment", "not offered"), ("--save-conf", "--save-txt")])
def test_the_same_for_detection(argv: str, words: str) -> None:
    assert words in lines(argv, "detect")


def test_the_plain_article_command_has_nothing_to_explain() -> None:
    argv = "--workers 8 --device 0 --batch 64 --data data.yaml --img 640 --cfg models/detect/yolov9-s.yaml"
    assert (
        lines(argv + " --name yolov9-s --hyp hyp.scratch-high.yaml --min-items 0 --epochs 20 --close-mosaic 15") == ""
    )


@pytest.mark.parametrize(
    "argv",
    [
        "--epochs 0",
        "--batch 0",
        "--batch -2",
        "--img 16",
        "--workers -1",
        "--accumulate 0",
        "--patience -1",
        "--gpu-share 0",
        "--gpu-share 1.5",
        "--jobs 0",
        "--cos-lr --fixed-lr",
        "--stages 320",
        "--stages 330:2",
        "--stages 320:0,640:3",
        "--stages 320:2,640:3 --multi-scale",
        "--stages 320:2,640:3 --img 640",
        "--stages 320:2,640:3 --epochs 4",
        "--dynamic-accumulate 4",
        "--dynamic-accumulate 0:4",
        "--dynamic-accumulate 1:4 --accumulate 2",
        "--batch 16 --accumulate 2 --optimisation-batch 64",
        "--img 1000000",
        "--epochs 99999999999999999999",
        "--stages 64:99999999999",
        "--stages 640000:1",
        "--prefetch 100000000",
        "--batch 1000000000",
        "--seed -1",
        "--seed 99999999999999999999",
        "--freeze -1",
        "--save-period -7",
        "--name ..",
        "--name ../elsewhere",
        "--name /abs",
        f"--name {'x' * 300}",
    ],
)
def test_what_cannot_be_is_refused_with_the_option_named(argv: str) -> None:
    with pytest.raises(UserError) as caught:
        lines(argv)
    assert argv.split()[0] in caught.value.found


@pytest.mark.parametrize(
    ("argv", "remedy"),
    [
        ("--batch 0", "--batch 1"),
        ("--img 16", "--img 640"),
        ("--jobs 0", "--jobs 1"),
        ("--gpu-share 2", "--gpu-share 0.5"),
    ],
)
def test_the_remedy_can_be_typed(argv: str, remedy: str) -> None:
    with pytest.raises(UserError) as caught:
        lines(argv)
    assert caught.value.remedy == f"{remedy}, or leave it out"


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(UserError, match="no name of a folder"):
        check_request(make_request("train", ["--name", ""], variables={}))


def test_a_name_in_a_folder_below_and_in_any_script_is_fine() -> None:
    assert lines("--name tests/größe-測試") == ""


@pytest.mark.parametrize("argv", ["--classes -1"])
def test_class_numbers_below_zero_are_refused(argv: str) -> None:
    with pytest.raises(UserError, match="--classes"):
        lines(argv, "detect")


def test_batch_minus_one_is_automatic() -> None:
    assert lines("--batch -1") == ""


@pytest.mark.parametrize(("asked", "used"), [(640, 640), (641, 672), (32, 32)])
def test_picture_sizes_are_rounded_up_to_the_stride(asked: int, used: int) -> None:
    assert rounded_size(asked) == used
