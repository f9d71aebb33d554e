"""parity/iou: overlap measures, their gradient, and the matrices."""

import numpy as np
import pytest
import torch

from yolov9.data.augment import covered_share
from yolov9.ops.iou import IouKind, iou_matrix, iou_pairs

TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def pairs(parity_dir):
    with np.load(parity_dir / "iou" / "pairs.npz") as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays}


@pytest.mark.parametrize("kind", list(IouKind))
def test_pairs_overlap_as_in_the_fixture(pairs, kind):
    torch.testing.assert_close(
        iou_pairs(pairs["box_a"], pairs["box_b"], kind), pairs[kind.value], atol=TOLERANCE, rtol=0
    )


def test_gradient_of_ciou_treats_the_aspect_weight_as_constant(pairs):
    boxes = pairs["box_a"].clone().requires_grad_()
    iou_pairs(boxes, pairs["box_b"], IouKind.CIOU).sum().backward()
    torch.testing.assert_close(boxes.grad, pairs["ciou_grad_a"], atol=1e-6, rtol=1e-4)


def test_matrix_of_plain_iou(pairs):
    matrix = iou_matrix(pairs["box_a"][:20], pairs["box_b"][:20])
    torch.testing.assert_close(matrix, pairs["matrix_iou"], atol=TOLERANCE, rtol=0)


def test_share_of_the_second_box_that_is_covered(pairs):
    matrix = covered_share(pairs["box_a"][:20].numpy(), pairs["box_b"][14:40].numpy())
    np.testing.assert_allclose(matrix, pairs["ioa"].numpy(), atol=TOLERANCE, rtol=0)
