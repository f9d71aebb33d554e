"""Lanes where there are no streams, and the switch to plain operations."""

import torch

from yolov9.ops.lanes import MOST_BEHIND, Behind, Lane, active_lanes


def test_without_streams_a_lane_runs_in_place() -> None:
    order = []
    lane = Lane("beside")
    order.append("before")
    with lane.run([torch.zeros(1)]):
        order.append("inside")
    lane.join([torch.zeros(1)])
    assert order == ["before", "inside"]
    assert active_lanes() is None


def test_work_behind_holds_so_many_bytes_at_the_most() -> None:
    behind = Behind(most_bytes=1000)
    ends = [behind.add(number, (torch.zeros(100), torch.zeros(size))) for number, size in enumerate((50, 50, 10, 400))]
    # 600 bytes a piece, then 440, then 2,000, which is more than all may hold and waits for all others.
    assert ends == [[], [0], [1], [2]]
    assert [done for done, _ in behind.pieces] == [3]


def test_small_pieces_of_work_behind_are_limited_in_number() -> None:
    behind = Behind(most_bytes=float("inf"))
    ends = [behind.add(number, (torch.zeros(1),)) for number in range(MOST_BEHIND + 2)]
    assert ends == [[]] * MOST_BEHIND + [[0], [1]]
