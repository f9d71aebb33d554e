"""Every entry of the collection of odd files: pictures, label files and data.yaml files with quirks."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from yolov9.data import DatasetIndex, ImageError, load_dataset_config, read_image
from yolov9.data.scan import scan_picture
from yolov9.errors import DataError

SHARED = Path(os.environ.get("YOLOV9_TEST_SHARED", Path(__file__).parents[4] / "shared"))
ODD = SHARED / "data" / "odd"
CASES = json.loads((ODD / "index.json").read_text(encoding="utf-8"))["cases"] if ODD.is_dir() else []
REPAIRED = ("path-not-there", "roboflow-export", "windows-separators")
"""Cases of a data.yaml that are used with a warning."""
CONTROL_ROWS = "0 0.5 0.5 0.2 0.2\n"
BOX_TOLERANCE = 1e-5  # the list has six decimals

pytestmark = pytest.mark.skipif(not CASES, reason=f"{ODD} is absent; set YOLOV9_TEST_SHARED to the folder of data/")


def _of_kind(kind):
    chosen = [case for case in CASES if case["kind"] == kind]
    return pytest.mark.parametrize(
        "case",
        chosen,
        ids=[Path(case["file"]).name[:40] if kind != "yaml" else Path(case["file"]).parent.name for case in chosen],
    )


def _same_boxes(labels, boxes):
    assert len(labels) == len(boxes)
    ours = labels[np.lexsort(labels.T)]
    wanted = np.array(boxes, np.float64).reshape(-1, 5)
    wanted = wanted[np.lexsort(wanted.T)]
    np.testing.assert_allclose(ours, wanted, rtol=0, atol=BOX_TOLERANCE)


def _number_of(index, name):
    found = [number for number in range(len(index)) if Path(index.path(number)).name == name]
    return found[0] if found else None


@pytest.fixture(scope="module")
def pictures_index():
    return DatasetIndex.build(load_dataset_config(str(ODD / "data.yaml")), "train", cache_dir=None)


def _outcome(index, name):
    """Says what became of a picture in the words of the list: use, repair, skip or ignore."""
    problems = [problem for problem in index.summary.problems if Path(problem.path).stem == Path(name).stem]
    problems = [problem for problem in problems if problem.action != "row left out"]
    if _number_of(index, name) is not None:
        return "repair" if problems else "use"
    return "skip" if problems else "ignore"


@_of_kind("image")
def test_odd_picture(case, pictures_index):
    name = Path(case["file"]).name
    assert _outcome(pictures_index, name) in (case["expect"], *case.get("also_ok", ()))
    number = _number_of(pictures_index, name)
    if number is None:
        return
    width, height = case["size"]
    assert pictures_index.sizes[number].tolist() == [width, height]
    assert read_image(pictures_index.path(number)).shape == (height, width, 3)
    _same_boxes(pictures_index.labels_of(number), case["boxes"])


def test_counts_of_the_odd_pictures_add_up(pictures_index):
    summary = pictures_index.summary
    in_set = [case for case in CASES if case["kind"] == "image" and case["expect"] != "ignore"]
    assert summary.found == summary.used + summary.skipped == len(in_set)


def test_skipped_odd_pictures_are_named_with_a_reason(pictures_index):
    for case in CASES:
        if case["kind"] == "image" and case["expect"] == "skip":
            assert any(
                problem.path.endswith(case["file"]) and problem.reason for problem in pictures_index.summary.problems
            )


def test_cmyk_colours_are_those_of_the_same_picture_in_rgb():
    cmyk, rgb = read_image(ODD / "images/print_cmyk.jpg"), read_image(ODD / "images/DSC_0001.JPG")
    assert np.abs(cmyk.astype(int) - rgb).mean() < 6  # inverted or unconverted colours differ by 50 and more


def test_deep_grey_picture_is_neither_clipped_nor_dark():
    image = read_image(ODD / "images/depth16.png")
    assert image.max() < 256
    assert 40 < image.mean() < 200
    assert (image == 255).mean() < 0.05


def test_palette_picture_has_the_colours_of_its_palette():
    palette, rgb = read_image(ODD / "images/indexed_transparent.png"), read_image(ODD / "images/DSC_0001.JPG")
    assert np.abs(palette.astype(int) - rgb).mean() < 12


def test_broken_odd_pictures_raise_with_their_name():
    for name in ("empty_file.png", "download_failed.jpg", "header_claims_25000.png"):
        with pytest.raises(ImageError, match=name):
            read_image(ODD / "images" / name)


@pytest.fixture
def label_index(tmp_path):
    """Function that builds an index of one label case between two sound ones."""

    def build(case):
        for folder in ("images", "labels"):
            (tmp_path / folder).mkdir()
        shutil.copy(ODD / case["image"], tmp_path / "images")
        if not case.get("file_missing"):
            shutil.copy(ODD / case["file"], tmp_path / "labels")
        for stem in ("control1", "control2"):
            shutil.copy(ODD / "label-cases/images/ok.jpg", tmp_path / "images" / f"{stem}.jpg")
            (tmp_path / "labels" / f"{stem}.txt").write_text(CONTROL_ROWS)
        (tmp_path / "data.yaml").write_text("train: images\nval: images\nnames: [person, vehicle, other]\n")
        return DatasetIndex.build(load_dataset_config(str(tmp_path)), "train", cache_dir=None)

    return build


@_of_kind("label")
def test_odd_label_file(case, label_index):
    allowed = (case["expect"], *case.get("also_ok", ()))
    name = Path(case["image"]).name
    if case["expect"] == "error":
        with pytest.raises(DataError, match=Path(case["file"]).name):
            label_index(case)
        return
    index = label_index(case)
    if case.get("scope") == "row":
        assert _number_of(index, name) is not None
    else:
        assert _outcome(index, name) in allowed
    number = _number_of(index, name)
    assert index.summary.found == 3
    assert index.summary.used == 3 - (number is None)
    if number is not None:
        _same_boxes(index.labels_of(number), case["boxes"])


@_of_kind("label")
def test_odd_label_file_that_is_not_used_as_it_is_is_named(case):
    scanned = scan_picture(str(ODD / case["image"]), None)
    named = any(Path(problem.path).name == Path(case["file"]).name for problem in scanned.problems)
    sound = case["expect"] == "use" or case["expect"] == "error"  # class numbers are judged over the whole set
    assert named != sound


@_of_kind("yaml")
def test_odd_data_yaml(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the result must not depend on the working folder
    path = str(ODD / case["file"])
    if case["expect"] == "error" and Path(path).parent.name not in REPAIRED:
        with pytest.raises(DataError, match=r"data\.yaml"):
            load_dataset_config(path)
        return
    config = load_dataset_config(path)
    assert list(config.names) == case.get("names", ["person", "vehicle", "other"])
    for split, count in case.get("images", {"train": 2, "val": 1}).items():
        assert len(DatasetIndex.build(config, split, cache_dir=None)) == count


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tab-indent", ["line 5", "tab"]),
        ("nc-differs", ["nc is 5", "3 entries"]),
        ("missing-index", ["class 1"]),
        ("no-val-key", ["val"]),
    ],
)
def test_odd_data_yaml_error_says_what_is_wrong(name, words):
    with pytest.raises(DataError) as caught:
        load_dataset_config(str(ODD / "yaml-cases" / name / "data.yaml"))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", REPAIRED)
def test_repaired_data_yaml_is_warned_about(name, caplog):
    load_dataset_config(str(ODD / "yaml-cases" / name / "data.yaml"))
    assert any(record.levelname == "WARNING" and "data.yaml" in record.getMessage() for record in caplog.records)
