"""The index: flat arrays, options, counts, report, and the reasons not to start."""

import os
import re

import numpy as np
import pytest

from yolov9.data import DatasetIndex, load_dataset_config
from yolov9.errors import DataError

BOX = "0 0.5 0.5 0.2 0.2\n"
POLYGON = "1 0.1 0.2 0.5 0.2 0.3 0.6\n"


def _build(data, **options):
    return DatasetIndex.build(load_dataset_config(str(data)), "train", cache_dir=None, **options)


def test_labels_and_polygons_are_those_of_each_picture(make_set):
    index = _build(make_set({"a": BOX + POLYGON, "b": "", "c": None, "d": POLYGON}))
    assert [len(index.labels_of(number)) for number in range(4)] == [2, 0, 0, 1]
    assert [[len(part) for part in index.segments_of(number)] for number in range(4)] == [[0, 3], [], [], [3]]
    np.testing.assert_allclose(index.segments_of(3)[0], [[0.1, 0.2], [0.5, 0.2], [0.3, 0.6]], atol=1e-6)
    assert index.sizes.tolist() == [[32, 24]] * 4


def test_every_label_has_its_place_among_the_polygons(make_set):
    index = _build(make_set({"a": BOX + POLYGON + BOX.replace("0.2", "0.3"), "b": BOX}))
    assert len(index.segment_offsets) == len(index.labels) + 1


def test_arrays_go_there_and_back(make_set):
    index = _build(make_set({"ä b": BOX + POLYGON, "b": ""}))
    again = DatasetIndex.from_arrays(index.arrays())
    assert again.names == index.names
    assert again.nc == index.nc
    assert [again.path(0), again.path(1)] == [index.path(0), index.path(1)]
    np.testing.assert_array_equal(again.labels_of(0), index.labels_of(0))
    assert all(array.dtype != object for array in index.arrays().values())


def test_number_of_workers_changes_nothing(make_set):
    data = make_set({f"p{number:03d}": BOX * (number % 3 > 0) for number in range(300)})
    one, four = _build(data, workers=1), _build(data, workers=4)
    for name, array in one.arrays().items():
        np.testing.assert_array_equal(array, four.arrays()[name])


def test_single_class_makes_every_class_0(make_set):
    index = _build(make_set({"a": BOX + POLYGON}), single_cls=True)
    assert index.labels[:, 0].tolist() == [0, 0]
    assert (index.nc, index.names) == (1, ("item",))


def test_pictures_with_too_few_objects_are_left_out_and_counted(make_set):
    summary = _build(make_set({"a": BOX + POLYGON, "b": BOX, "c": ""}), min_items=2).summary
    assert (summary.found, summary.used, summary.skipped) == (3, 1, 2)
    assert summary.left_out == {"fewer than 2 objects": 2}


def test_a_minimum_that_no_picture_reaches_is_refused_with_the_highest_that_one_does(make_set):
    with pytest.raises(DataError, match="leaves none of the 2 pictures") as caught:
        _build(make_set({"a": BOX + POLYGON, "b": BOX}), min_items=3)
    assert caught.value.remedy.startswith("--min-items 2")


def test_summary_counts_backgrounds_and_objects_by_class(make_set):
    summary = _build(make_set({"a": BOX + POLYGON, "b": "", "c": None})).summary
    assert (summary.backgrounds, summary.labels_missing) == (2, 1)
    assert summary.boxes_per_class == (1, 1, 0)
    assert summary.boxes == 2


def test_report_has_every_problem_with_file_line_and_text(make_set, tmp_path):
    bad = {f"x{number}": BOX + "0 nan 0.5 0.2 0.2\n" for number in range(5)}
    summary = _build(make_set({"a": BOX, **bad})).summary
    summary.write_report(tmp_path / "run" / "data.txt")
    report = (tmp_path / "run" / "data.txt").read_text()
    assert len(re.findall(r"x\d\.txt:2: not a finite number: '0 nan 0.5 0.2 0.2'; row left out", report)) == 5
    assert "       5  not a finite number" in report
    assert summary.headline() in report


def test_log_has_the_first_problems_of_each_kind_and_their_number(make_set, caplog):
    bad = {f"x{number}": BOX + "0 nan 0.5 0.2 0.2\n" for number in range(5)}
    _build(make_set({"a": BOX, **bad}, names=("a",)))
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == 4
    assert lines[-1] == "... 2 more files: not a finite number"


def test_set_without_a_single_label_is_an_error(make_set):
    data = make_set({"a": None, "b": None})
    with pytest.raises(DataError) as caught:
        _build(data)
    assert str(data.parent / "labels" / "train" / "a.txt") in caught.value.found


def test_set_without_pictures_is_an_error_that_names_the_folder(make_set):
    data = make_set({})
    with pytest.raises(DataError) as caught:
        _build(data)
    assert str(data.parent / "images" / "train") in caught.value.found


def test_set_without_a_readable_picture_is_an_error(make_set):
    data = make_set({"a": BOX})
    (data.parent / "images" / "train" / "a.png").write_bytes(b"")
    with pytest.raises(DataError, match="empty file"):
        _build(data)


def test_list_of_which_no_file_is_there_is_an_error_that_names_the_list(make_set):
    data = make_set({"a": BOX})
    (data.parent / "list.txt").write_text("images/b.png\n", encoding="utf-8")
    data.write_text("train: list.txt\nval: images/train\nnames: [a]\n", encoding="utf-8")
    with pytest.raises(DataError, match="files that") as caught:
        _build(data)
    assert str(data.parent / "list.txt") in caught.value.remedy


def test_a_pipe_among_the_pictures_is_left_out(make_set):
    data = make_set({"a": BOX})
    os.mkfifo(data.parent / "images" / "train" / "b.jpg")
    assert _build(data).summary.left_out == {"not a file": 1}


def test_set_of_mostly_bad_label_files_stops_unless_overridden(make_set):
    data = make_set({"a": BOX, "b": "cat 0.5 0.5 0.2 0.2\n", "c": "0,0.5,0.5,0.2,0.2\n"})
    with pytest.raises(DataError) as caught:
        _build(data)
    assert "2 of 3 label files" in caught.value.found
    assert "b.txt:1" in caught.value.found
    assert len(_build(data, allow_bad_labels=True)) == 1


@pytest.mark.parametrize(("rows", "hinted"), [("0 1 2 3", False), ("1 2 3", True), ("3", False), ("1 2 3 4", False)])
def test_class_number_out_of_range_is_an_error_with_a_hint_when_it_looks_1_based(rows, hinted, make_set):
    text = "".join(f"{number} 0.5 0.5 0.2 0.2\n" for number in rows.split())
    with pytest.raises(DataError) as caught:
        _build(make_set({"a": text, "b": text}))
    assert "class 3: 2 rows" in caught.value.found
    assert "nc is 3" in caught.value.found
    assert "a.txt" in caught.value.found
    assert ("1-based" in caught.value.found) == hinted


def test_class_number_out_of_range_does_not_matter_for_a_single_class(make_set):
    assert _build(make_set({"a": "7 0.5 0.5 0.2 0.2\n"}), single_cls=True).labels[:, 0].tolist() == [0]


def test_names_with_spaces_and_dots_and_other_scripts_are_found_with_their_labels(make_set):
    stems = ["a b", "图片 1", "x.y.z", "🙂", "images", "y" * 250]
    index = _build(make_set(dict.fromkeys(stems, BOX)))
    assert len(index) == len(stems)
    assert len(index.labels) == len(stems)


def test_hidden_files_folders_and_other_files_are_no_part_of_the_set(make_set):
    data = make_set({"a": BOX})
    images = data.parent / "images" / "train"
    for name in ("._a.png", "Thumbs.db", "notes.txt", ".hidden.jpg"):
        (images / name).write_bytes(b"junk")
    (images / ".ipynb_checkpoints").mkdir()
    (images / ".ipynb_checkpoints" / "a-checkpoint.png").write_bytes((images / "a.png").read_bytes())
    assert _build(data).summary.found == 1


def test_picture_format_without_decoder_is_counted_as_left_out(make_set):
    data = make_set({"a": BOX})
    (data.parent / "images" / "train" / "phone.HEIC").write_bytes(b"....ftypheic")
    summary = _build(data).summary
    assert (summary.found, summary.used) == (2, 1)
