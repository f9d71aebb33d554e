"""`val`: scores, files and errors, on labels that the model itself has written."""

import json
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from yolov9.config.settings import ValSettings
from yolov9.engine.detector import Detector, DetectorOptions
from yolov9.engine.label_rows import label_text
from yolov9.engine.val_command import validate_split
from yolov9.errors import DataError, UserError

SIDE = 96
BORDER = 16
"""Half a stride: what validation adds around a square picture."""
CATEGORY_IDS = [7, 3, 90]
NAMES = ["RBC", "汽车", "../../escape"]


def _own_detections(detector: Detector, image: np.ndarray) -> np.ndarray:
    """What validation will find in a square picture, without boxes over its border, which are clipped."""
    framed = cv2.copyMakeBorder(image, BORDER, BORDER, BORDER, BORDER, cv2.BORDER_CONSTANT, value=(114, 114, 114))
    rows = detector.predict(framed).rows()
    rows[:, :4] -= BORDER
    return rows[((rows[:, :4] > 0) & (rows[:, :4] < SIDE)).all(1)]


@pytest.fixture(scope="module")
def data(weights: Path, photo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of six pictures, their labels, and the same labels as COCO annotations."""
    root = tmp_path_factory.mktemp("data")
    detector = Detector(weights, "cpu", DetectorOptions(imgsz=SIDE + 2 * BORDER, conf=0.3, iou=0.7, max_det=60))
    images, annotations = [], []
    for number, source in enumerate(sorted(photo.parent.iterdir())[:6]):
        image = cv2.resize(cv2.imread(str(source)), (SIDE, SIDE), interpolation=cv2.INTER_AREA)
        name = f"{139 + number:012d}"
        for folder in ("images/val", "labels/val"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(root / "images" / "val" / f"{name}.png"), image)
        rows = _own_detections(detector, image)
        (root / "labels" / "val" / f"{name}.txt").write_text(label_text(rows, (SIDE, SIDE), with_scores=False))
        images.append({"id": 139 + number, "file_name": f"{name}.png", "width": SIDE, "height": SIDE})
        for x1, y1, x2, y2, _, label in rows.tolist():
            box = [x1, y1, x2 - x1, y2 - y1]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": 139 + number,
                    "category_id": CATEGORY_IDS[int(label)],
                    "bbox": box,
                    "area": box[2] * box[3],
                    "iscrowd": 0,
                }
            )
    categories = [{"id": number, "name": name} for number, name in zip(CATEGORY_IDS, NAMES, strict=True)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "instances.json").write_text(json.dumps(content))
    lines = ["train: images/val", "val: images/val", "names:", *(f"  - {json.dumps(name)}" for name in NAMES)]
    (root / "data.yaml").write_text("\n".join(lines), encoding="utf-8")
    return root / "data.yaml"


@pytest.fixture
def settings(data: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ValSettings]:
    monkeypatch.setenv("YOLOV9_CACHE_DIR", str(tmp_path / "cache"))

    def make(**options: object) -> ValSettings:
        values = {"data": str(data), "weights": str(weights), "imgsz": SIDE, "device": "cpu", "workers": 0}
        return ValSettings(**{**values, "batch_size": 4, "noplots": True, **options})

    return make


def test_a_model_finds_all_of_its_own_detections(
    settings: Callable[..., ValSettings], tmp_path: Path, log_lines: list[str], capsys: pytest.CaptureFixture[str]
):
    report = validate_split(settings(), tmp_path / "run")
    assert report.result.pictures == 6
    assert report.result.labels > 20
    assert report.result.scores.recall_curve[:, 0] == pytest.approx(1)
    assert report.result.confusion.counts.trace() > 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows][:2] == ["class", "all"]
    assert any("pictures a second" in line for line in log_lines)
    assert list((tmp_path / "run").iterdir()) == []


def test_label_files_and_results_say_the_same(settings: Callable[..., ValSettings], data: Path, tmp_path: Path):
    validate_split(settings(save_txt=True, save_conf=True, save_json=True, conf_thres=0.3), tmp_path / "run")
    rows = json.loads((tmp_path / "run" / "predictions.json").read_text())
    first = np.loadtxt(tmp_path / "run" / "labels" / "000000000139.txt", ndmin=2)
    mine = [row for row in rows if row["image_id"] == 139]
    assert [row["category_id"] for row in mine] == first[:, 0].tolist()
    assert [row["score"] for row in mine] == pytest.approx(first[:, 5], abs=1e-4)
    left = (first[:, 1] - first[:, 3] / 2) * SIDE
    assert [row["bbox"][0] for row in mine] == pytest.approx(left, abs=0.01)
    truth = np.loadtxt(data.parent / "labels" / "val" / "000000000139.txt", ndmin=2)
    nearest = np.abs(first[None, :, :5] - truth[:, None]).max(2).min(1)
    assert nearest.max() < 0.002


def test_coco_scores_come_with_an_annotation_file(
    settings: Callable[..., ValSettings], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("faster_coco_eval")
    report = validate_split(settings(annotations=str(data.parent / "instances.json")), tmp_path / "run")
    assert report.coco is not None
    assert report.coco.ar_100 == pytest.approx(1)
    assert {row["category_id"] for row in json.loads((tmp_path / "run" / "predictions.json").read_text())} <= set(
        CATEGORY_IDS
    )
    assert "COCO AP" in capsys.readouterr().out


def test_diagrams_are_drawn_unless_noplots(settings: Callable[..., ValSettings], tmp_path: Path):
    validate_split(settings(noplots=False), tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {
        "PR_curve.png",
        "F1_curve.png",
        "confusion_matrix.png",
        "val_batch0_labels.jpg",
        "val_batch0_pred.jpg",
    } <= names


def test_speed_measures_time_and_writes_nothing(settings: Callable[..., ValSettings], tmp_path: Path):
    report = validate_split(settings(task="speed", save_json=True, noplots=False), tmp_path / "run")
    assert report.seconds > 0
    assert list((tmp_path / "run").iterdir()) == []


def test_single_class_compares_boxes_only(settings: Callable[..., ValSettings], tmp_path: Path):
    report = validate_split(settings(single_cls=True), tmp_path / "run")
    assert report.names == ("item",)
    assert report.result.scores.classes.tolist() == [0]


def test_weights_of_other_classes_are_refused(settings: Callable[..., ValSettings], data: Path, tmp_path: Path):
    other = tmp_path / "other.yaml"
    other.write_text(f"path: {data.parent}\ntrain: images/val\nval: images/val\nnames: [a, b, c, d]\n")
    with pytest.raises(DataError, match="3 classes, the data set has 4"):
        validate_split(settings(data=str(other)), tmp_path / "run")


def test_classes_that_have_another_name_in_the_weights_are_told(
    settings: Callable[..., ValSettings], data: Path, tmp_path: Path, log_lines: list[str]
):
    other = tmp_path / "other.yaml"
    names = json.dumps([NAMES[1], NAMES[0], NAMES[2]])
    other.write_text(f"path: {data.parent}\ntrain: images/val\nval: images/val\nnames: {names}\n", encoding="utf-8")
    validate_split(settings(noplots=True), tmp_path / "run")
    assert not any("another name" in line for line in log_lines)
    validate_split(settings(data=str(other), noplots=True), tmp_path / "run")
    assert any(line.startswith("WARNING 2 of 3 classes have another name") for line in log_lines)


def test_weights_without_names_have_no_others(
    settings: Callable[..., ValSettings], unnamed_weights: Path, tmp_path: Path, log_lines: list[str]
):
    validate_split(settings(weights=str(unnamed_weights), noplots=True), tmp_path / "run")
    assert not any("another name" in line for line in log_lines)


def test_a_split_that_is_not_there_is_a_data_error(settings: Callable[..., ValSettings], tmp_path: Path):
    with pytest.raises(DataError, match="test"):
        validate_split(settings(task="test"), tmp_path / "run")


def test_missing_annotations_are_found_before_the_work_begins(settings: Callable[..., ValSettings], tmp_path: Path):
    with pytest.raises(DataError, match=r"absent\.json"):
        validate_split(settings(annotations=str(tmp_path / "absent.json")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_missing_weights_are_a_plain_error(settings: Callable[..., ValSettings], tmp_path: Path):
    with pytest.raises(UserError, match=r"absent\.pt"):
        validate_split(settings(weights="/nowhere/absent.pt"), tmp_path / "run")
