"""parity/nms: every case of every file; and the reference's loss of precision for high class numbers, not repeated."""

import json

import numpy as np
import pytest
import torch

from yolov9.ops import iou_matrix, nms, xyxy_to_xywh

FILES = ("nc1", "nc80-class-offset", "no-ties", "one-image-empty", "ties")
REFERENCE_SHIFT = 7680
"""The reference moves the boxes of class k by k times this, in float32, before it compares them."""


@pytest.fixture(params=FILES)
def file(request, parity_dir):
    return _load(parity_dir, request.param)


def _load(parity_dir, name):
    with np.load(parity_dir / "nms" / f"{name}.npz") as arrays:
        return json.loads((parity_dir / "nms" / f"{name}.json").read_text()), {key: arrays[key] for key in arrays}


def _run(arrays, case):
    return nms(
        torch.from_numpy(arrays["prediction"]),
        conf=case["conf"],
        iou=case["iou"],
        classes=case["classes"],
        agnostic=case["agnostic"],
        multi_label=case["multi_label"],
        max_det=case["max_det"],
    )


def _sorted(rows):
    """Rows in an order that does not depend on how equal scores were sorted."""
    return rows[np.lexsort((*rows[:, :4].T, rows[:, 5], -rows[:, 4]))]


def test_no_file_is_left_out(parity_dir):
    assert {path.stem for path in (parity_dir / "nms").iterdir()} == set(FILES)


def test_rows_of_every_case(file):
    facts, arrays = file
    for name, case in facts["cases"].items():
        found = _run(arrays, case)
        assert [len(rows) for rows in found] == case["kept"], name
        for picture, rows in enumerate(found):
            actual, expected = _sorted(rows.numpy()), _sorted(arrays[f"{name}_{picture}"])
            np.testing.assert_allclose(actual[:, :4], expected[:, :4], atol=1e-4, rtol=0, err_msg=name)
            np.testing.assert_allclose(actual[:, 4], expected[:, 4], atol=1e-6, rtol=0, err_msg=name)
            np.testing.assert_array_equal(actual[:, 5], expected[:, 5], err_msg=name)


def test_rows_come_with_falling_score(file):
    facts, arrays = file
    for case in facts["cases"].values():
        for rows in _run(arrays, case):
            assert (rows[:-1, 4] >= rows[1:, 4]).all()


def _kept(boxes, number):
    """How many of these boxes of class `number` of 80 survive at IoU 0.5."""
    prediction = torch.zeros(1, 84, len(boxes))
    prediction[0, :4] = xyxy_to_xywh(boxes).T
    prediction[0, 4 + number] = torch.linspace(0.9, 0.5, len(boxes))
    return len(nms(prediction, iou=0.5)[0])


def test_high_classes_are_compared_with_full_precision():
    # Their IoU is 0.4998, so both stay. Moved by 79 x 7680 px in float32, coordinates become multiples of 1/16 px, the
    # IoU comes out as 0.502 and the reference drops the second box. In nc80-class-offset no row depends on this: that
    # file is compared in full above.
    boxes = torch.tensor([[10.04, 10.0, 30.04, 30.0], [16.71, 10.0, 36.71, 30.0]])
    moved = boxes + REFERENCE_SHIFT * 79
    assert iou_matrix(boxes[:1], boxes[1:]) < 0.5 < iou_matrix(moved[:1], moved[1:])
    assert [_kept(boxes, number) for number in (0, 69, 79)] == [2, 2, 2]
