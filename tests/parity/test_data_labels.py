"""Label rules against parity/data/label_files.json (label files and what the reference made of them)."""

import json

import numpy as np
import pytest
from PIL import Image

from yolov9.data import DatasetIndex, load_dataset_config
from yolov9.data.labels import parse_labels

NAMES = [
    "two-boxes",
    "blank-lines-and-spaces",
    "tabs",
    "empty-file",
    "missing-file",
    "four-columns",
    "six-columns",
    "ragged-5-and-4",
    "polygon-3-points",
    "polygon-4-points",
    "polygon-odd-count",
    "polygon-mixed-with-box",
    "polygon-out-of-range",
    "negative-coordinate",
    "negative-class",
    "coordinate-above-one",
    "coordinate-exactly-one",
    "coordinate-one-plus-tiny",
    "box-over-border-but-normalised",
    "zero-size",
    "float-class",
    "duplicates",
    "nan",
    "word",
    "commas",
]

BETTER_THAN_THE_REFERENCE = {
    # The reference reads the box row of such a file as a polygon of two points.
    "polygon-mixed-with-box": {
        "labels": [[1, 0.3, 0.4, 0.4, 0.40000003576278687], [0, 0.5, 0.5, 0.2, 0.3]],
        "polygons": [3, 0],
    },
    # The reference does not check that class numbers are whole.
    "float-class": {"kept": False},
}


@pytest.fixture(scope="module")
def cases(parity_dir):
    return json.loads((parity_dir / "data" / "label_files.json").read_text())


def test_every_case_of_the_fixture_is_here(cases):
    assert list(cases) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_label_file_gives_the_labels_of_the_reference(name, cases):
    case = cases[name]
    expected = {**case, **BETTER_THAN_THE_REFERENCE.get(name, {})}
    parsed = parse_labels((case["text"] or "").encode())
    assert (not parsed.refused) == expected["kept"]
    if not expected["kept"]:
        assert parsed.problems
        return
    wanted = np.array(expected["labels"], np.float32).reshape(-1, 5)
    np.testing.assert_array_equal(parsed.labels, wanted)
    if name not in BETTER_THAN_THE_REFERENCE:
        polygons = [segment for segment in parsed.segments if len(segment)]
        assert len(polygons) == len(case["polygons"])
        for polygon, points in zip(polygons, case["polygons"], strict=True):
            np.testing.assert_array_equal(polygon, np.array(points, np.float32))
    else:
        assert [len(segment) for segment in parsed.segments] == expected["polygons"]


@pytest.mark.parametrize("name", NAMES)
def test_counts_of_the_reference_come_out_of_the_scan(name, cases, tmp_path):
    case = cases[name]
    kept = BETTER_THAN_THE_REFERENCE.get(name, case).get("kept", True)
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
    good = "0 0.5 0.5 0.2 0.2\n"
    for stem, text in (("a", case["text"]), ("b", good), ("c", good)):
        Image.new("RGB", (30, 20)).save(tmp_path / "images" / f"{stem}.png")
        if text is not None:
            (tmp_path / "labels" / f"{stem}.txt").write_text(text)
    (tmp_path / "data.yaml").write_text("train: images\nval: images\nnc: 3\n")
    index = DatasetIndex.build(load_dataset_config(str(tmp_path)), "train", cache_dir=None)
    summary = index.summary
    assert (summary.found, summary.used, summary.skipped) == (3, 2 + kept, 1 - kept)
    assert summary.labels_missing == case["missing"]
    assert summary.backgrounds == case["missing"] + case["empty"]
    if kept:
        assert index.sizes[0].tolist() == case["shape_wh"]
