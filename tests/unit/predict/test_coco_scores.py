"""Results in COCO's format and scores by a COCO library, against figures made with pycocotools."""

import dataclasses
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from yolov9.engine import coco_scores as module
from yolov9.engine.coco_scores import CocoAnnotations, coco_scores, image_id, result_rows
from yolov9.errors import DataError

HAVE_LIBRARY = any(importlib.util.find_spec(name) for name, _, _ in module.LIBRARIES)
needs_library = pytest.mark.skipif(not HAVE_LIBRARY, reason=module.INSTALL_HINT)


def _write(
    path: Path, categories: list[tuple[int, str]], boxes: list[tuple[int, int, list[float]]], images: int = 2
) -> Path:
    content = {
        "images": [{"id": 100 + k, "file_name": f"{k:012d}.jpg", "width": 640, "height": 480} for k in range(images)],
        "annotations": [
            {
                "id": k + 1,
                "image_id": image,
                "category_id": category,
                "bbox": box,
                "area": box[2] * box[3],
                "iscrowd": 0,
            }
            for k, (image, category, box) in enumerate(boxes)
        ],
        "categories": [{"id": number, "name": name} for number, name in categories],
    }
    path.write_text(json.dumps(content))
    return path


def test_a_number_as_file_name_is_the_image_id():
    assert image_id("/data/val/000000000139.jpg") == 139
    assert image_id("street 1.jpg") == "street 1"
    assert image_id("١٢.jpg") == "١٢"


def test_rows_have_the_fields_of_the_format():
    rows = result_rows(7, np.array([[10, 20, 40.12345, 60, 0.98765432, 1]], np.float32), [1, 90])
    assert rows == [{"image_id": 7, "category_id": 90, "bbox": [10.0, 20.0, 30.123, 40.0], "score": 0.98765}]


def test_names_decide_about_categories(tmp_path: Path):
    annotations = CocoAnnotations(_write(tmp_path / "a.json", [(18, "dog"), (3, "Car"), (1, "person")], []))
    assert annotations.category_ids(["car", "dog"]) == [3, 18]


def test_eighty_classes_of_other_names_get_the_published_ids_by_order(tmp_path: Path):
    published = [number for number in range(1, 91) if number not in {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}]
    annotations = CocoAnnotations(_write(tmp_path / "a.json", [(n, f"name {n}") for n in published], []))
    assert annotations.category_ids([str(k) for k in range(80)]) == published


def test_names_and_number_that_fit_nothing_are_an_error(tmp_path: Path):
    annotations = CocoAnnotations(_write(tmp_path / "a.json", [(1, "person")], []))
    with pytest.raises(DataError, match="'cat'"):
        annotations.category_ids(["cat", "dog"])


def test_the_file_decides_about_image_ids(tmp_path: Path):
    annotations = CocoAnnotations(_write(tmp_path / "a.json", [(1, "person")], []))
    assert annotations.image_id("/x/000000000001.jpg") == 101
    assert annotations.image_id("/x/000000000009.jpg") == 9


NAMELESS = b'{"images": [{"id": 1}], "annotations": [], "categories": []}'


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"images": []}', b"\xff\xfe", NAMELESS])
def test_a_file_that_is_no_annotation_file_is_a_data_error(content: bytes | None, tmp_path: Path):
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.json"):
        CocoAnnotations(tmp_path / "a.json")


@needs_library
def test_perfect_detections_score_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    annotations = CocoAnnotations(
        _write(tmp_path / "a.json", [(5, "x")], [(100, 5, [10, 10, 50, 50]), (101, 5, [0, 0, 20, 20])])
    )
    rows = result_rows(100, np.array([[10, 10, 60, 60, 0.9, 0]]), [5]) + result_rows(
        101, np.array([[0, 0, 20, 20, 0.8, 0]]), [5]
    )
    scores = coco_scores(annotations, rows, [100, 101])
    assert scores is not None
    assert (scores.ap, scores.ap50, scores.ar_1, scores.ap_large) == (1.0, 1.0, 1.0, -1.0)
    assert capsys.readouterr().out == ""
    assert "COCO AP 1.0000" in scores.lines()[0]


@needs_library
def test_pictures_that_were_not_looked_at_do_not_count(tmp_path: Path, log_lines: list[str]):
    annotations = CocoAnnotations(
        _write(tmp_path / "a.json", [(5, "x")], [(100, 5, [10, 10, 50, 50]), (101, 5, [0, 0, 20, 20])])
    )
    rows = result_rows(100, np.array([[10, 10, 60, 60, 0.9, 0]]), [5])
    scores = coco_scores(annotations, rows, [100, "extra"])
    assert scores is not None
    assert scores.ap == 1.0
    assert any("knows 1 of 2" in line for line in log_lines)


@needs_library
def test_no_detection_at_all_scores_zero(tmp_path: Path):
    annotations = CocoAnnotations(_write(tmp_path / "a.json", [(5, "x")], [(100, 5, [10, 10, 50, 50])]))
    scores = coco_scores(annotations, [], [100])
    assert scores is not None
    assert scores.ap == 0


def test_pictures_of_another_data_set_are_an_error(tmp_path: Path):
    annotations = CocoAnnotations(_write(tmp_path / "a.json", [(5, "x")], []))
    with pytest.raises(DataError, match="none of the 1 pictures"):
        coco_scores(annotations, [], ["other"])


def test_without_a_library_the_remedy_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: list[str]
):
    monkeypatch.setattr(module, "LIBRARIES", (("no_such_coco_library", "COCO", "COCOeval"),))
    annotations = CocoAnnotations(_write(tmp_path / "a.json", [(5, "x")], []))
    assert coco_scores(annotations, [], [100]) is None
    assert [line for line in log_lines if "pip install" in line]


@needs_library
@pytest.mark.parametrize("name", ["general", "mixed", "perfect", "wrong"])
def test_scores_equal_pycocotools_on_the_fixtures(name: str, parity_dir: Path, tmp_path: Path):
    facts = json.loads((parity_dir / "metrics" / "index.json").read_text())[name]
    arrays = np.load(parity_dir / "metrics" / f"{name}.npz")
    boxes = [
        (int(row[0]) + 100, int(row[1]) + 1, [row[2], row[3], row[4] - row[2], row[5] - row[3]])
        for row in arrays["labels"].astype(float).tolist()
    ]
    path = _write(tmp_path / "a.json", [(k + 1, f"c{k}") for k in range(facts["nc"])], boxes, facts["images"])
    ids = list(range(1, facts["nc"] + 1))
    rows = [
        entry
        for row in arrays["detections"]
        for entry in result_rows(int(row[0]) + 100, row[None, 1:].astype(float), ids)
    ]
    scores = coco_scores(CocoAnnotations(path), rows, [100 + k for k in range(facts["images"])])
    assert scores is not None
    figures = [getattr(scores, field.name) for field in dataclasses.fields(scores) if field.name != "library"]
    assert figures == pytest.approx(facts["pycocotools"]["stats"], abs=1e-6)
