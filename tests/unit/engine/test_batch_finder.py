"""The choice of the micro-batch, on cards made of arithmetic."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from yolov9.engine.batch_finder import DoesNotFit, FoundBatch, Limits, Probe, find_batch

GB = 1_000_000_000
MB = 1_000_000
LAUNCH_S = 0.02
MEASURED = {
    "yolov9-t": [(2, 3.18), (3, 3.44), (13, 5.57), (37, 10.51), (50, 12.86), (109, 24.3), (349, 70.32), (512, 99.83)],
    "yolov9-s": [(2, 3.62), (3, 3.98), (9, 6.17), (23, 10.91), (29, 12.96), (132, 46.3), (206, 70.84), (427, 142.04)],
    "yolov9-m": [(2, 5.08), (3, 5.73), (4, 6.46), (9, 10.1), (11, 11.45), (13, 12.76), (31, 25.1), (204, 142.28)],
    "yolov9-c": [(2, 5.94), (3, 6.69), (7, 10.4), (8, 11.42), (10, 13.35), (24, 25.9), (74, 69.89), (156, 141.94)],
    "yolov9-e": [(2, 6.71), (3, 7.65), (6, 10.79), (8, 13.0), (21, 26.3), (44, 48.7), (64, 68.2), (138, 141.24)],
    "yolov9-s, 320 px": [(2, 1.17), (7, 1.67), (32, 3.88), (76, 7.72), (139, 13.17), (170, 15.5), (512, 42.61)],
    "yolov9-s, 1280 px": [(1, 11.86), (2, 13.31), (3, 14.68), (7, 20.2), (14, 29.1), (43, 67.1), (101, 142.12)],
}
"""Model -> pictures and the gigabytes that a step of them took on an H200, 512 loaded at a time."""
HELD = {
    "yolov9-t": 2.60,
    "yolov9-s": 2.74,
    "yolov9-m": 3.25,
    "yolov9-c": 3.66,
    "yolov9-e": 4.06,
    "yolov9-s, 320 px": 0.85,
    "yolov9-s, 1280 px": 10.29,
}
"""Gigabytes that lay there before, without any picture in the network."""


@dataclass
class Card:
    """A card with so much memory left for this job; a step takes fixed memory and so much a picture."""

    free_bytes: int
    fixed_bytes: int = 1 * GB
    held_bytes: int = 800 * MB
    """As much of it as is known."""
    each_bytes: int = 300 * MB
    beyond_bytes: int = 0
    """So much more is there than this job may take: what goes beyond its budget may well fit."""
    launch_s: float = LAUNCH_S
    """Time of a step that more pictures share."""
    fails_above: int = 10**9
    """More pictures do not fit although memory seems to be there: fragmentation."""
    bend: float = 0.0
    """Share by which memory grows faster than the line at 100 pictures."""
    measured: list[int] = field(default_factory=list)

    def measure(self, pictures: int) -> Probe | None:
        self.measured.append(pictures)
        peak = int(self.fixed_bytes + self.each_bytes * pictures * (1 + self.bend * pictures / 100))
        if peak > self.free_bytes + self.beyond_bytes or pictures > self.fails_above:
            return None
        return Probe(pictures, peak, self.launch_s + 0.002 * pictures)

    def find(self, loaded: int = 64, *, largest: bool = False) -> FoundBatch:
        return find_batch(self.measure, Limits(self.free_bytes, loaded, largest, self.held_bytes))


def test_a_large_card_takes_all_pictures_of_a_step() -> None:
    card = Card(140 * GB)
    found = card.find()
    assert found.pictures == 64
    assert "all of the pictures" in found.reason
    assert len(card.measured) <= 3


@pytest.mark.parametrize("each", [100 * MB, 300 * MB, 1200 * MB, 5000 * MB])
@pytest.mark.parametrize("free", [14 * GB, 70 * GB, 140 * GB])
def test_uncapped_most_of_the_memory_is_used_and_the_line_is_right(free: int, each: int) -> None:
    card = Card(free, each_bytes=each)
    found = card.find(100_000, largest=True)
    assert found.measured_bytes <= free
    assert found.predicted_bytes == pytest.approx(found.measured_bytes, rel=0.05)
    assert found.measured_bytes >= min(0.85 * free, free - each - 0.05 * free)
    assert len(card.measured) <= 4


@pytest.mark.parametrize("free", [13.8, 73.7, 149.0])
@pytest.mark.parametrize("model", sorted(MEASURED))
def test_what_steps_took_on_a_real_card_is_foreseen(model: str, free: float) -> None:
    free_bytes, counts = round(free * GB), []

    def measure(pictures: int) -> Probe | None:
        counts.append(pictures)
        peak = round(GB * float(np.interp(pictures, *zip(*MEASURED[model], strict=True))))
        return None if peak > free_bytes else Probe(pictures, peak, LAUNCH_S + 0.002 * pictures)

    most, held = MEASURED[model][-1][0], HELD[model]
    found = find_batch(measure, Limits(free_bytes, most, largest=True, held_bytes=round(held * GB)))
    assert found.predicted_bytes == pytest.approx(found.measured_bytes, rel=0.05)
    assert found.measured_bytes >= 0.9 * free_bytes or found.pictures == most
    assert len(counts) <= 3


def test_two_pictures_that_leave_no_room_are_followed_by_one() -> None:
    card = Card(14 * GB, fixed_bytes=10 * GB, each_bytes=int(1.8 * GB))
    card.find(512, largest=True)
    assert card.measured == [2, 1]


def test_a_second_batch_that_does_not_fit_is_followed_by_half_of_it() -> None:
    card = Card(30 * GB, fails_above=40)
    assert card.find(512, largest=True).pictures == 36
    assert card.measured[:3] == [2, 70, 36]


def test_more_than_has_failed_is_not_tried_again() -> None:
    card = Card(30 * GB, fails_above=60)
    assert card.find(512, largest=True).pictures > 54
    assert all(count < 70 for count in card.measured[2:])


def test_a_line_is_not_trusted_far_from_what_was_measured() -> None:
    """Nothing is known of what is held, so the second batch is a small one."""
    card = Card(60 * GB, fixed_bytes=10 * GB, held_bytes=0, each_bytes=200 * MB, bend=0.1)
    found = card.find(10_000, largest=True)
    assert card.measured[:2] == [2, 11]
    assert card.measured[2] > 100
    assert found.pictures == card.measured[3]
    assert found.predicted_bytes == pytest.approx(found.measured_bytes, rel=0.05)


def test_a_line_is_trusted_up_to_twice_its_last_point() -> None:
    for loaded, then in ((22, [22]), (23, [13, 23])):
        card = Card(60 * GB, fixed_bytes=10 * GB, held_bytes=0, each_bytes=200 * MB)
        card.find(loaded, largest=True)
        assert card.measured == [2, 11, *then]


def test_one_loaded_picture_that_does_not_fit_is_not_measured_again() -> None:
    card = Card(3 * GB, each_bytes=4 * GB)
    with pytest.raises(DoesNotFit):
        card.find(1)
    assert card.measured == [1]


def test_all_that_the_first_batch_took_may_be_held() -> None:
    card = Card(30 * GB, held_bytes=2 * GB)
    assert card.find(largest=True).pictures == 64
    assert card.measured == [2, 64]


@pytest.mark.parametrize("free", [3 * GB, 6 * GB, 8 * GB, 12 * GB, 16 * GB])
def test_small_cards_take_parts_that_fit(free: int) -> None:
    card = Card(free)
    found = card.find()
    assert found.measured_bytes <= free
    assert 1 <= found.pictures < 64


def test_equal_parts_are_taken_where_they_cost_little() -> None:
    found = Card(int((1 * GB + 33 * 300 * MB) / 0.96) + MB).find(largest=True)
    assert (found.pictures, found.reason) == (32, "33 fit; equal parts of 64")


def test_a_smaller_batch_that_is_as_fast_is_taken_and_said() -> None:
    saturated = Card(30 * GB, launch_s=0.0)
    found = saturated.find(512)
    assert found.pictures == saturated.measured[1] < max(saturated.measured)
    assert "not faster" in found.reason
    assert Card(30 * GB, launch_s=0.0).find(512, largest=True).pictures > found.pictures


@pytest.mark.parametrize(("launch_s", "smaller"), [(0.0, True), (0.015, True), (0.018, False)])
def test_a_smaller_batch_is_taken_where_the_larger_one_gains_two_percent_at_the_most(
    launch_s: float, smaller: bool
) -> None:
    """70 and 86 pictures: 0.015 s that they share are 1.8 % of a picture's time, 0.018 s 2.2 %."""
    card = Card(30 * GB, launch_s=launch_s)
    found = card.find(512)
    assert card.measured == [2, 70, 86]
    assert ("not faster" in found.reason) == smaller


def test_a_batch_that_fails_despite_the_line_is_lowered() -> None:
    found = Card(30 * GB, fails_above=80).find(512, largest=True)
    assert 70 < found.pictures <= 80


@pytest.mark.parametrize("beyond", [0, 60 * GB])
def test_memory_that_bends_upwards_never_exceeds_the_budget(beyond: int) -> None:
    found = Card(60 * GB, bend=0.3, beyond_bytes=beyond).find(512, largest=True)
    assert found.measured_bytes <= 60 * GB
    assert found.pictures > 64


def test_a_workspace_that_only_larger_batches_take_is_kept_out_of_the_budget() -> None:
    def measure(pictures: int) -> Probe:
        workspace = 6 * GB if pictures > 80 else 0
        return Probe(pictures, 1 * GB + 300 * MB * pictures + workspace, LAUNCH_S + 0.002 * pictures)

    found = find_batch(measure, Limits(30 * GB, 512, largest=True, held_bytes=800 * MB))
    assert found.measured_bytes <= 30 * GB
    assert found.pictures > 70


@pytest.mark.parametrize("loaded", [2, 64])
def test_what_fits_the_card_but_not_the_budget_is_not_taken(loaded: int) -> None:
    card = Card(3 * GB, each_bytes=int(1.5 * GB), beyond_bytes=7 * GB)
    assert card.find(loaded).pictures == 1


def test_where_nothing_is_within_the_budget_the_least_is_taken() -> None:
    assert Card(2 * GB, each_bytes=int(1.2 * GB), beyond_bytes=8 * GB).find().pictures == 1


def test_the_smallest_batch_is_left_where_all_others_fail_or_take_too_much() -> None:
    def measure(pictures: int) -> Probe | None:
        if pictures > 40:
            return Probe(pictures, 31 * GB, 1.0)
        return Probe(2, 2 * GB, 1.0) if pictures == 2 else None

    assert find_batch(measure, Limits(30 * GB, 64, held_bytes=1 * GB)).pictures == 2


def test_where_two_do_not_fit_one_is_taken() -> None:
    assert Card(7 * GB, each_bytes=4 * GB).find().pictures == 1


def test_where_two_do_not_fit_although_memory_seems_to_be_there_one_is_taken() -> None:
    found = Card(5 * GB, fails_above=1).find()
    assert (found.pictures, found.reason) == (1, "the most that fits")


@pytest.mark.parametrize(
    "card",
    [
        {"free_bytes": 140 * GB},
        {"free_bytes": 140 * GB, "fixed_bytes": 40 * GB, "held_bytes": 0, "each_bytes": 600 * MB},
        {"free_bytes": 30 * GB},
        {"free_bytes": 30 * GB, "launch_s": 0.0},
        {"free_bytes": 14 * GB, "fixed_bytes": 10 * GB, "each_bytes": int(1.8 * GB)},
    ],
)
def test_each_measurement_is_told_once(card: dict[str, Any]) -> None:
    made = Card(**card)
    assert sorted(probe.pictures for probe in made.find(100).probes) == sorted(made.measured)


def test_what_was_measured_may_come_closer_to_the_budget_than_what_is_foreseen() -> None:
    card = Card(14 * GB, fixed_bytes=10 * GB, each_bytes=int(1.8 * GB))
    found = card.find(512, largest=True)
    assert (found.pictures, found.measured_bytes) == (2, int(13.6 * GB))


def test_where_two_are_all_that_fits_the_line_knows_what_is_fixed() -> None:
    card = Card(14 * GB, fixed_bytes=10 * GB, each_bytes=int(1.95 * GB))
    found = card.find(512, largest=True)
    assert found.pictures == 1, "two fit, but not with room to spare"
    assert found.predicted_bytes == found.measured_bytes == card.fixed_bytes + card.each_bytes


def test_one_picture_that_does_not_fit_is_said() -> None:
    with pytest.raises(DoesNotFit):
        Card(3 * GB, each_bytes=4 * GB).find()


@pytest.mark.parametrize("loaded", [1, 2])
def test_few_loaded_pictures_need_one_measurement(loaded: int) -> None:
    card = Card(10 * GB)
    assert (card.find(loaded).pictures, card.measured) == (loaded, [loaded])


def test_no_part_is_left_with_a_few_pictures_unless_the_most_was_asked_for() -> None:
    free = int((1 * GB + 30 * 300 * MB) / 0.96) + MB
    assert Card(free).find().pictures == 22
    assert Card(free).find(largest=True).pictures == 30
