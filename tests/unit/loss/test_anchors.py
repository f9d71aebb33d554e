import torch

from yolov9.loss.anchors import KnownAnchors

CPU = torch.device("cpu")


def test_points_of_a_size_are_made_once_because_graphs_read_them() -> None:
    known = KnownAnchors([8.0, 16.0])
    first = known.get([(4, 6), (2, 3)], CPU)
    for side in range(1, 40):
        known.get([(side, side), (side, side)], CPU)
    assert known.get([(4, 6), (2, 3)], CPU).points is first.points


def test_each_size_has_its_own_points() -> None:
    known = KnownAnchors([8.0])
    assert known.get([(1, 2)], CPU).points.tolist() == [[4.0, 4.0], [12.0, 4.0]]
    assert known.get([(2, 1)], CPU).points.tolist() == [[4.0, 4.0], [4.0, 12.0]]


def test_points_made_in_validation_can_be_trained_with() -> None:
    known = KnownAnchors([8.0])
    with torch.inference_mode():
        anchors = known.get([(2, 2)], CPU)
    assert not anchors.points.is_inference()
    assert not anchors.strides.is_inference()


def test_nothing_is_made_where_it_is_known() -> None:
    known = KnownAnchors([8.0])
    assert not known.has([(2, 2)], CPU)
    known.get([(2, 2)], CPU)
    assert known.has([(2, 2)], CPU)
    assert not known.has([(2, 3)], CPU)
