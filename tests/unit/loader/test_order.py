"""Order of an epoch and random numbers of a sample."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yolov9.data.order import BatchPlan, Shuffle, sample_generator


@given(st.integers(0, 2**40), st.integers(0, 1000), st.integers(1, 3000))
def test_shuffle_shows_every_picture_once(seed, epoch, count):
    shuffle = Shuffle(seed, epoch, count)
    assert sorted(shuffle(place) for place in range(count)) == list(range(count))


def test_shuffle_differs_by_epoch_and_by_seed():
    orders = {tuple(Shuffle(seed, epoch, 100)(p) for p in range(100)) for seed, epoch in product(range(3), range(3))}
    assert len(orders) == 9


@pytest.mark.parametrize("count", [4, 7])
def test_shuffle_puts_every_picture_everywhere_about_equally_often(count):
    times = np.zeros((count, count))
    epochs = 1000
    for epoch in range(epochs):
        shuffle = Shuffle(0, epoch, count)
        for place in range(count):
            times[place, shuffle(place)] += 1
    expected = epochs / count
    chi_square = ((times - expected) ** 2 / expected).sum()
    freedom = (count - 1) ** 2
    assert chi_square < freedom + 5 * np.sqrt(2 * freedom)


def test_neighbours_in_the_index_are_not_neighbours_in_the_epoch():
    shuffle = Shuffle(0, 0, 10_000)
    order = np.array([shuffle(place) for place in range(10_000)])
    assert (np.abs(np.diff(order)) == 1).mean() < 0.002
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.05


def test_sample_generators_share_no_numbers():
    keys = list(product(range(2), range(3), range(50)))
    draws = [sample_generator(*key).random(4).tolist() for key in keys]
    assert len({number for row in draws for number in row}) == 4 * len(keys)
    assert draws[17] == sample_generator(*keys[17]).random(4).tolist()


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 5))
def test_ranks_get_equal_counts_and_together_every_position(count, batch, world):
    plans = [BatchPlan(count, batch, rank, world) for rank in range(world)]
    positions = [[p for number in range(len(plan)) for p in plan.positions(number)] for plan in plans]
    assert {len(own) for own in positions} == {plans[0].samples}
    together = sorted(p for own in positions for p in own)
    assert together == list(range(plans[0].samples * world))
    assert {p % count for p in together} == set(range(count))


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 5))
def test_a_global_batch_holds_the_same_positions_for_any_number_of_ranks(count, batch, world):
    whole = BatchPlan(count, batch * world)
    parts = [BatchPlan(count, batch, rank, world) for rank in range(world)]
    for number in range(len(whole)):
        together = sorted(p for part in parts for p in part.positions(number))
        assert together[: len(whole.positions(number))] == list(whole.positions(number))


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 5))
def test_validation_shows_each_position_once_over_all_ranks(count, batch, world):
    plans = [BatchPlan(count, batch, rank, world, even=False) for rank in range(world)]
    positions = [p for plan in plans for number in range(len(plan)) for p in plan.positions(number)]
    assert sorted(positions) == list(range(count))


def test_the_last_batch_is_smaller_and_kept():
    plan = BatchPlan(10, 4)
    assert [len(plan.positions(number)) for number in range(len(plan))] == [4, 4, 2]
