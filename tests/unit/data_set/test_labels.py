"""Label rows: variants that are read as normal, rows that are left out, files that are refused."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yolov9.data import read_labels
from yolov9.data.labels import parse_labels

GOOD = "0 0.5 0.5 0.2 0.2"


@pytest.mark.parametrize(
    "data",
    [
        b"0 0.5 0.5 0.2 0.2\r\n",
        b"\xef\xbb\xbf0 0.5 0.5 0.2 0.2\n",
        b"0\t0.5\t0.5\t0.2\t0.2\n",
        b"\n\n0 0.5 0.5 0.2 0.2\n\n",
        b"  0  0.5 0.5 0.2 0.2   \n",
        b"# a comment\n0 0.5 0.5 0.2 0.2",
        b"0.0 5e-1 0.5 .2 0.2",
        b"0 0.5 0.5 0.2 0.2\r",
        GOOD.encode("utf-16"),
    ],
    ids=["crlf", "bom", "tabs", "blank", "spaces", "comment", "float-notation", "cr", "utf-16"],
)
def test_harmless_variant_is_read_as_normal(data):
    parsed = parse_labels(data)
    np.testing.assert_array_equal(parsed.labels, np.array([[0, 0.5, 0.5, 0.2, 0.2]], np.float32))
    assert not parsed.problems


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ("0,0.5,0.5,0.2,0.2", "commas"),
        ("0 0,5 0,5 0,2 0,2", "commas"),
        ("cat 0.5 0.5 0.2 0.2", "word"),
        ("0 0.5 0.5 0.2", "4 numbers"),
        ("0 0.5 0.5 0.2 0.2 0.9", "6 numbers"),
        ("0 0_1 0.5 0.2 0.2", "word"),
        ("0", "1 numbers"),
    ],
)
def test_row_in_another_format_refuses_the_file_with_line_and_text(row, word):
    parsed = parse_labels(f"{GOOD}\n\n{row}\n".encode())
    (problem,) = parsed.problems
    assert word in parsed.refused
    assert (problem.line, problem.text, problem.action) == (3, row, "picture left out")
    assert len(parsed.labels) == 0


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ("1 0.1 0.2 0.5 0.2 0.3 0.6 0.7", "odd number"),
        ("0 nan 0.5 0.2 0.2", "finite"),
        ("0 inf 0.5 0.2 0.2", "finite"),
        ("-1 0.5 0.5 0.2 0.2", "class"),
        ("1.5 0.5 0.5 0.2 0.2", "class"),
        ("0 206 252 90 194", "not normalised"),
        ("0 -0.1 0.5 0.2 0.2", "not normalised"),
    ],
)
def test_damaged_row_is_left_out_and_the_others_stay(row, word):
    parsed = parse_labels(f"{GOOD}\n{row}\n".encode())
    (problem,) = parsed.problems
    assert not parsed.refused
    assert word in problem.reason
    assert (problem.line, problem.text, problem.action) == (2, row, "row left out")
    np.testing.assert_array_equal(parsed.labels, np.array([[0, 0.5, 0.5, 0.2, 0.2]], np.float32))


def test_file_with_more_damaged_rows_than_sound_ones_is_refused():
    parsed = parse_labels(f"{GOOD}\n0 206 252 90 194\n0 440 288 383 383\n".encode())
    assert parsed.refused
    assert parsed.problems[0].rows == 2


def test_box_rows_and_polygon_rows_are_told_apart_row_by_row():
    parsed = parse_labels(f"{GOOD}\n1 0.1 0.2 0.5 0.2 0.5 0.6 0.1 0.6\n2 0.1 0.1 0.3 0.1 0.2 0.4\n".encode())
    np.testing.assert_allclose(parsed.labels[0], [0, 0.5, 0.5, 0.2, 0.2], atol=1e-6)
    np.testing.assert_allclose(parsed.labels[1], [1, 0.3, 0.4, 0.4, 0.4], atol=1e-6)
    np.testing.assert_allclose(parsed.labels[2], [2, 0.2, 0.25, 0.2, 0.3], atol=1e-6)
    assert [len(segment) for segment in parsed.segments] == [0, 4, 3]


def test_closed_polygon_gives_the_same_box_as_an_open_one():
    open_row, closed_row = "1 0.1 0.2 0.5 0.2 0.3 0.6", "1 0.1 0.2 0.5 0.2 0.3 0.6 0.1 0.2"
    np.testing.assert_array_equal(parse_labels(open_row.encode()).labels, parse_labels(closed_row.encode()).labels)


def test_rounding_errors_are_clipped_and_a_sliver_at_the_border_goes():
    parsed = parse_labels(f"{GOOD}\n1 0.5 0.5 1.00002 0.6\n2 -1e-7 0.5 0.000001 0.2\n".encode())
    np.testing.assert_allclose(parsed.labels, [[0, 0.5, 0.5, 0.2, 0.2], [1, 0.5, 0.5, 1, 0.6]], atol=1e-6)
    assert [problem.action for problem in parsed.problems] == ["repaired", "row left out"]


@pytest.mark.parametrize("row", ["1 0.5 0.5 0 0.2", "1 0.5 0.5 0.2 0", "1 0.1 0.5 0.2 0.5 0.3 0.5"])
def test_box_without_area_is_kept_and_told(row):
    parsed = parse_labels(f"{GOOD}\n{row}\n".encode())
    assert len(parsed.labels) == len(parsed.segments) == 2
    assert parsed.problems[0].reason == "box without width or height"
    assert parsed.problems[0].action.startswith("kept")
    assert parsed.problems[0].line == 2


def test_key_points_are_cut_off_where_the_data_set_has_them():
    row = GOOD + " 0.9 0.9 2" * 4
    parsed = parse_labels(f"{row}\n".encode(), key_point_columns=12)
    np.testing.assert_array_equal(parsed.labels, parse_labels(GOOD.encode()).labels)
    assert not parsed.problems


def test_segments_follow_their_labels_when_duplicates_are_removed():
    parsed = parse_labels(b"1 0.1 0.2 0.5 0.2 0.3 0.6\n0 0.5 0.5 0.2 0.2\n1 0.1 0.2 0.5 0.2 0.3 0.6\n")
    assert parsed.labels[:, 0].tolist() == [0, 1]
    assert [len(segment) for segment in parsed.segments] == [0, 3]
    assert parsed.problems[0].line == 3


@given(st.binary(max_size=200))
def test_any_bytes_give_labels_in_range_or_a_reason(data):
    parsed = parse_labels(data)
    assert len(parsed.labels) == len(parsed.segments)
    assert not parsed.refused or parsed.problems
    assert ((parsed.labels[:, 1:] >= 0) & (parsed.labels[:, 1:] <= 1)).all()


_PLACE = st.floats(0, 1, width=32)
_SIZE = st.floats(0, 1, width=32, exclude_min=True)


@given(st.lists(st.tuples(st.integers(0, 90), _PLACE, _PLACE, _SIZE, _SIZE), unique=True, max_size=20))
def test_written_boxes_are_read_back_exactly(rows):
    text = "\n".join(" ".join(repr(value) for value in row) for row in rows)
    expected = np.array(rows, np.float32).reshape(-1, 5)
    np.testing.assert_array_equal(parse_labels(text.encode()).labels, expected)


def test_a_label_file_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "größe 写真.txt"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode() + b"\r\n")
    assert np.array_equal(read_labels(path).labels, parse_labels(GOOD.encode()).labels)
    with pytest.raises(FileNotFoundError):
        read_labels(tmp_path / "none.txt")
