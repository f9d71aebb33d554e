"""parity/metrics: matching, average precision, confusion matrix, COCO's own scores, and the whole validation pass."""

import json

import numpy as np
import pytest
import torch

from yolov9.engine.coco_scores import CocoAnnotations, coco_scores, result_rows
from yolov9.engine.metrics import (
    IOU_LEVELS,
    ConfusionMatrix,
    average_precision,
    average_precision_per_class,
    fitness,
    match_detections,
    smooth,
)
from yolov9.ops import nms, scale_boxes, xywh_to_xyxy

TOLERANCE = 1e-6
CASES = ("mixed", "wrong", "perfect", "general")
PIPELINES = ("pipeline", "pipeline-single-class", "pipeline-no-detections")


@pytest.fixture(scope="module")
def index(parity_dir):
    facts = json.loads((parity_dir / "metrics" / "index.json").read_text())
    assert set(facts) == {*CASES, *PIPELINES, "_helpers"}
    return facts


def _arrays(parity_dir, name):
    with np.load(parity_dir / "metrics" / f"{name}.npz") as file:
        return {key: file[key] for key in file}


@pytest.fixture(params=CASES)
def case(request, parity_dir, index):
    return index[request.param], _arrays(parity_dir, request.param)


def _pictures(case):
    """Detections (n, 6) and labels (m, 5) of each picture."""
    facts, arrays = case
    labels, detections = arrays["labels"], arrays["detections"]
    for i in range(facts["images"]):
        yield detections[detections[:, 0] == i, 1:], labels[labels[:, 0] == i, 1:]


def test_levels(parity_dir):
    np.testing.assert_allclose(IOU_LEVELS, _arrays(parity_dir, "mixed")["iou_levels"], rtol=0, atol=TOLERANCE)


def test_matches(case):
    found = np.concatenate([match_detections(*picture) for picture in _pictures(case)])
    np.testing.assert_array_equal(found, case[1]["correct"])


def test_scores_of_each_class(case):
    facts, arrays = case
    scores = average_precision_per_class(arrays["correct"], arrays["conf"], arrays["pred_cls"], arrays["target_cls"])
    found = {
        "tp": scores.true_positives,
        "fp": scores.false_positives,
        "precision": scores.precision,
        "recall": scores.recall,
        "f1": scores.f1,
        "ap": scores.average_precision,
        "classes": scores.classes,
    }
    for name, values in found.items():
        np.testing.assert_allclose(values, arrays[name], rtol=0, atol=TOLERANCE, err_msg=name)
    assert scores.classes.tolist() == facts["classes_with_labels"]
    assert scores.average_precision[:, 0] == pytest.approx(facts["ap50_per_class"], abs=TOLERANCE)
    assert scores.average_precision.mean(1) == pytest.approx(facts["ap50_95_per_class"], abs=TOLERANCE)


def test_means_and_fitness(case):
    facts, arrays = case
    scores = average_precision_per_class(arrays["correct"], arrays["conf"], arrays["pred_cls"], arrays["target_cls"])
    for name in ("mean_precision", "mean_recall", "map50", "map50_95", "fitness"):
        assert getattr(scores, name) == pytest.approx(facts[name], abs=TOLERANCE), name
    assert bool(scores.true_positives.any()) == facts["any_true_positive"]


def test_confusion_matrix(case):
    # The reference counts no false positives in a picture where nothing matches; a reader of the matrix expects them.
    # Here they count. Everything else is as in the fixture.
    facts, arrays = case
    matrix, uncounted = ConfusionMatrix(facts["nc"]), np.zeros(facts["nc"], np.int64)
    for detections, labels in _pictures(case):
        alone = ConfusionMatrix(facts["nc"])
        alone.add(detections, labels)
        if not alone.counts[:-1, :-1].any():
            uncounted += alone.counts[:-1, -1]
        matrix.add(detections, labels)
    expected = arrays["confusion"].copy()
    expected[:-1, -1] += uncounted
    np.testing.assert_array_equal(matrix.counts, expected)


def test_average_precision_of_single_curves(index):
    for curve in index["_helpers"]["compute_ap"]:
        found = average_precision(np.array(curve["recall"]), np.array(curve["precision"]))
        assert found == pytest.approx(curve["ap"], abs=TOLERANCE)


@pytest.mark.parametrize("share", [0.1, 0.05])
def test_smoothing(index, share):
    helpers = index["_helpers"]
    found = smooth(np.array(helpers["smooth_input"]), share)
    np.testing.assert_allclose(found, helpers[f"smooth_f{share}"], rtol=0, atol=TOLERANCE)


def test_fitness_weights(index):
    helpers = index["_helpers"]
    assert [0.0, 0.0, fitness(1, 0), fitness(0, 1)] == pytest.approx(helpers["fitness_weights_P_R_map50_map"])
    assert helpers["fitness_of_identity_rows"] == helpers["fitness_weights_P_R_map50_map"]


def _coco(case, folder, classes):
    """COCO's scores of a case, of labels and detections of some classes only."""
    facts, arrays = case
    annotations = [
        {
            "id": i + 1,
            "image_id": int(image),
            "category_id": int(label),
            "bbox": [float(value) for value in (left, top, right - left, bottom - top)],
            "area": float((right - left) * (bottom - top)),
            "iscrowd": 0,
        }
        for i, (image, label, left, top, right, bottom) in enumerate(arrays["labels"])
        if int(label) in classes
    ]
    content = {
        "images": [{"id": i, "file_name": f"{i}.jpg", "width": 640, "height": 640} for i in range(facts["images"])],
        "categories": [{"id": i, "name": str(i)} for i in classes],
        "annotations": annotations,
    }
    path = folder / "annotations.json"
    path.write_text(json.dumps(content))
    results = [
        row
        for image, (detections, _) in enumerate(_pictures(case))
        for row in result_rows(image, detections[np.isin(detections[:, 5], classes)], range(facts["nc"]))
    ]
    return coco_scores(CocoAnnotations(path), results, range(facts["images"]))


def test_coco_scores(case, tmp_path):
    pytest.importorskip("faster_coco_eval", reason="COCO scores need faster-coco-eval")
    facts, _ = case
    scores = _coco(case, tmp_path, range(facts["nc"]))
    found = [
        *(scores.ap, scores.ap50, scores.ap75, scores.ap_small, scores.ap_medium, scores.ap_large),
        *(scores.ar_1, scores.ar_10, scores.ar_100, scores.ar_small, scores.ar_medium, scores.ar_large),
    ]
    assert found == pytest.approx(facts["pycocotools"]["stats"], abs=TOLERANCE)


def test_coco_scores_of_each_class(case, tmp_path):
    pytest.importorskip("faster_coco_eval", reason="COCO scores need faster-coco-eval")
    facts, _ = case
    expected = facts["pycocotools"]
    for number in facts["classes_with_labels"]:
        scores = _coco(case, tmp_path, [number])
        assert scores.ap == pytest.approx(expected["ap50_95_per_class"][number], abs=TOLERANCE)
        assert scores.ap50 == pytest.approx(expected["ap50_per_class"][number], abs=TOLERANCE)


@pytest.mark.parametrize("name", PIPELINES)
def test_validation_pass(parity_dir, index, name):
    facts, arrays = index[name], _arrays(parity_dir, name)
    settings, expected = facts["settings"], facts["result"]
    single = settings.get("single_cls", False)
    columns = []
    for k, batch in enumerate(facts["batches"]):
        height, width = batch["input_hw"]
        found = nms(
            torch.from_numpy(arrays[f"pred_{k}"]),
            conf=settings["conf"],
            iou=settings["iou"],
            multi_label=settings["multi_label"],
            max_det=settings["max_det"],
            agnostic=single,
        )
        targets = torch.from_numpy(arrays[f"targets_{k}"])
        for i, (rows, (original, (ratio, pad))) in enumerate(zip(found, batch["shapes"], strict=True)):
            own = targets[targets[:, 0] == i]
            corners = xywh_to_xyxy(own[:, 2:] * torch.tensor([width, height, width, height]))
            place = ((height, width), tuple(original), tuple(ratio), tuple(pad))
            labels = torch.cat((own[:, 1:2], scale_boxes(corners, *place)), 1).numpy()
            label = torch.zeros_like(rows[:, 5:]) if single else rows[:, 5:]
            detections = torch.cat((scale_boxes(rows[:, :4], *place), rows[:, 4:5], label), 1).numpy()
            columns.append((match_detections(detections, labels), detections[:, 4], detections[:, 5], labels[:, 0]))
    scores = average_precision_per_class(*(np.concatenate(column) for column in zip(*columns, strict=True)))
    assert scores.mean_precision == pytest.approx(expected["mp"], abs=TOLERANCE)
    assert scores.mean_recall == pytest.approx(expected["mr"], abs=TOLERANCE)
    assert scores.map50 == pytest.approx(expected["map50"], abs=TOLERANCE)
    assert scores.map50_95 == pytest.approx(expected["map"], abs=TOLERANCE)
    per_class = np.full(len(expected["maps_per_class"]), scores.map50_95)  # that of classes without labels
    per_class[scores.classes] = scores.average_precision.mean(1)
    assert per_class == pytest.approx(expected["maps_per_class"], abs=TOLERANCE)
