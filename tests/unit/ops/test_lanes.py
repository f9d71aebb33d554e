"""Lanes where there are no streams, and the switch to plain operations."""

import torch

from yolov9.ops.lanes import Lane, active_lanes
from yolov9.ops.plain import plain_operations, plain_wanted


def test_without_streams_a_lane_runs_in_place() -> None:
    order = []
    lane = Lane("beside")
    order.append("before")
    with lane.run([torch.zeros(1)]):
        order.append("inside")
    lane.join([torch.zeros(1)])
    assert order == ["before", "inside"]
    assert active_lanes() is None


def test_plain_operations_are_wanted_inside_the_context_only() -> None:
    with plain_operations():
        with plain_operations():
            pass
        assert plain_wanted()
    assert not plain_wanted()
