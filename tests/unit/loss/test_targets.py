import numpy as np
import pytest
import torch

from yolov9.loss import TARGET_BUCKETS, pack_targets
from yolov9.loss.targets import PixelTargets

ROWS = [[1, 3, 0.1, 0.2, 0.3, 0.4], [0, 2, 0.5, 0.5, 0.5, 0.5], [1, 1, 0.6, 0.7, 0.2, 0.1]]


def test_rows_of_a_picture_keep_their_order():
    table = pack_targets(torch.tensor(ROWS), 3)
    assert table[1, :2].tolist() == torch.tensor([ROWS[0][1:], ROWS[2][1:]]).tolist()
    assert table[0, 0].tolist() == torch.tensor(ROWS[1][1:]).tolist()


def test_padding_has_class_minus_one_and_no_box():
    table = pack_targets(torch.tensor(ROWS), 3)
    assert (table[2, :, 0] == -1).all()
    assert (table[2, :, 1:] == 0).all()
    assert int((table[..., 0] >= 0).sum()) == len(ROWS)


def test_numpy_rows_are_taken():
    assert torch.equal(pack_targets(np.array(ROWS, np.float32), 3), pack_targets(torch.tensor(ROWS), 3))


@pytest.mark.parametrize(("count", "size"), [(0, 8), (8, 8), (9, 16), (512, 512), (513, 1024), (1025, 1536)])
def test_table_grows_in_steps(count, size):
    rows = torch.zeros(count, 6)
    assert pack_targets(rows, 2).shape == (2, size, 5)


def test_steps_rise():
    assert list(TARGET_BUCKETS) == sorted(set(TARGET_BUCKETS))


def test_a_picture_number_outside_the_batch_is_refused():
    with pytest.raises(ValueError, match="0 to 1 of 1"):
        pack_targets(torch.tensor(ROWS), 1)


def test_pixels_of_a_picture_that_is_not_square():
    targets = PixelTargets.from_table(pack_targets(torch.tensor(ROWS), 2, bucket=(2,)), (100, 200))
    torch.testing.assert_close(targets.boxes[0, 0], torch.tensor([50.0, 25.0, 150.0, 75.0]))
    assert targets.real.tolist() == [[True, False], [True, True]]
