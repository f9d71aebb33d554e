"""Data sets that can be trained on and hardly are what somebody meant: said in one line, with the run going on."""

import pytest

from yolov9.data import DatasetIndex, load_dataset_config
from yolov9.data.doubts import doubt_shared_pictures

BOX = "0 0.5 0.5 0.2 0.2\n"


def _warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def _build(yaml):
    return DatasetIndex.build(load_dataset_config(str(yaml)), "train", cache_dir=None)


def test_a_set_in_order_is_not_doubted(make_set, caplog):
    _build(make_set({"a": BOX * 2, "b": None, "c": BOX}, names=("a",)))
    assert not [line for line in _warnings(caplog) if "cache" not in line and "repeated" not in line]


def test_mostly_missing_label_files_are_told_with_the_place_where_one_lies(make_set, caplog):
    data = make_set({"a": None, "b": None, "c": BOX}, names=("a",))
    beside = data.parent / "images" / "train" / "a.txt"
    beside.write_text(BOX, encoding="utf-8")
    assert len(_build(data)) == 3
    (line,) = _warnings(caplog)
    assert "2 of the 3 pictures of 'train' have no label file" in line
    assert str(data.parent / "labels" / "train" / "a.txt") in line
    assert f"but {beside} is there" in line


def test_classes_that_no_training_picture_has_are_named(make_set, caplog):
    with caplog.at_level("INFO"):
        _build(make_set({"a": BOX}, names=("here", "never", "nowhere")))
    lines = [record.getMessage() for record in caplog.records]
    assert "2 of the 3 classes have no object in 'train' and cannot be learnt: never, nowhere" in lines


@pytest.mark.parametrize(("corners", "doubted"), [(True, True), (False, False)])
def test_boxes_that_were_written_as_corners_are_doubted(corners, doubted, make_set, caplog):
    rows = ""
    for number in range(12):
        left, top = 0.05 + 0.065 * number, 0.3
        values = (left, top, left + 0.2, top + 0.4) if corners else (left + 0.1, top + 0.2, 0.2, 0.4)
        rows += "0 " + " ".join(f"{value:.3f}" for value in values) + "\n"
    _build(make_set({"a": rows}, names=("a",)))
    assert any("left top right bottom" in line for line in _warnings(caplog)) == doubted


def test_validation_pictures_that_are_trained_on_are_counted(make_set, caplog):
    paths = _build(make_set({"a": BOX, "b": BOX}, names=("a",))).paths()
    doubt_shared_pictures(paths, {*list(paths)[:1], b"/other.png"})
    doubt_shared_pictures(paths, {b"/other.png"})
    assert _warnings(caplog) == [
        "1 of the 2 pictures of 'val' are in 'train' too: the scores say little about new pictures"
    ]
