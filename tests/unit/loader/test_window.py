"""Mosaic partners from recently decoded pictures."""

from collections import Counter

import numpy as np
import pytest

from yolov9.config.loader_memory import WINDOW_LAG
from yolov9.config.recipe import Recipe
from yolov9.data import reader
from yolov9.data.loader import open_loader
from yolov9.data.order import PictureOrder, sample_generator
from yolov9.data.partners import Partners, Sequence
from yolov9.data.window import Window, empty_heads, plan_window


def test_batches_are_identical_for_any_number_of_workers(settings, contents):
    found = []
    for workers in (0, 1, 4, 16):
        with open_loader(settings(workers=workers, mosaic_window=5, epochs=3)) as loader:
            found.append([contents(loader.epoch(epoch)) for epoch in range(3)])
    assert all(batches == found[0] for batches in found)


def test_samples_are_the_same_when_their_pictures_are_decoded_again(settings, contents):
    with open_loader(settings(mosaic_window=5, epochs=2)) as loader:
        expected = contents(loader.epoch(1))
    with open_loader(settings(mosaic_window=5, epochs=2, decode_again=True)) as loader:
        assert contents(loader.epoch(1)) == expected


def test_a_start_in_mid_epoch_gives_the_rest_of_the_epoch(settings, contents):
    with open_loader(settings(mosaic_window=5, epochs=3)) as loader:
        _, whole = contents(loader.epoch(1)), contents(loader.epoch(2))
    with open_loader(settings(mosaic_window=5, workers=1)) as loader:
        assert contents(loader.epoch(2, start_batch=1)) == whole[1:]


def partner_counts(window, count, samples):
    """Draws the partners of a run of samples; returns how often each distance back was taken."""
    order, sequence = PictureOrder(count, 0), Sequence(count, 0, 1)
    distances = Counter()
    for number in range(samples):
        epoch, position = sequence.at(number)
        partners = Partners(sample_generator(0, epoch, position), order, window, sequence, epoch, position)
        for _ in range(3):
            picture = partners.draw()
            distances[number - partners.sequence_of[picture]] += 1
            assert picture == order(*sequence.at(partners.sequence_of[picture]))
    return distances


def test_partners_come_evenly_from_the_window():
    distances = partner_counts(window=10, count=1000, samples=1000)
    assert sorted(distances) == list(range(WINDOW_LAG + 1, WINDOW_LAG + 11))
    assert max(distances.values()) < 1.3 * 300
    assert min(distances.values()) > 0.7 * 300


def test_without_window_all_pictures_are_partners():
    order, sequence = PictureOrder(20, 0), Sequence(20, 0, 1)
    drawn = {Partners(sample_generator(0, 0, p), order, 0, sequence, 0, p).draw() for p in range(300)}
    assert drawn == set(range(20))


@pytest.mark.parametrize(("window", "least", "most_uses"), [(0, 250, 3), (128, 155, 9), (256, 185, 7)])
def test_a_batch_shows_many_different_pictures(window, least, most_uses):
    """64 mosaics have 256 places; in the middle of an epoch of 20,000 pictures."""
    order, sequence = PictureOrder(20_000, 0), Sequence(20_000, 0, 1)
    for first in range(5000, 6280, 128):
        shown = Counter()
        for position in range(first, first + 64):
            partners = Partners(sample_generator(0, 0, position), order, window, sequence, 0, position)
            shown.update((order(0, position), *(partners.draw() for _ in range(3))))
        assert len(shown) >= least
        assert max(shown.values()) <= most_uses


@pytest.mark.parametrize("world", [1, 2, 3])
def test_sequence_numbers_and_positions_belong_together(world):
    for rank in range(world):
        sequence = Sequence(7, rank, world)
        for number in range(30):
            epoch, position = sequence.at(number)
            assert sequence.number(epoch, position) == number
            assert position % world == rank
        assert sequence.at(-1)[0] == 0


def test_each_picture_is_decoded_about_once_an_epoch(new_data_set, settings, monkeypatch):
    """In this process, so that reads can be counted; the window begins to be of use after `WINDOW_LAG` samples."""

    index, _ = new_data_set(60)
    reads = []
    original = reader.read_image
    monkeypatch.setattr(reader, "read_image", lambda path, reduce: reads.append(path) or original(path, reduce))
    chosen = settings(index=index, workers=0, mosaic_window=8, recipe=Recipe(mixup=1.0))
    with open_loader(chosen) as loader:
        for epoch in range(3):
            reads.clear()
            for batch in loader.epoch(epoch):
                batch.release()
    assert len(reads) <= 1.2 * 60


def test_samples_in_the_making_never_share_a_place():
    layout = plan_window(8, 16, 64)
    for sample in range(100, 200):
        in_use = {s % layout.places for s in range(sample - WINDOW_LAG - 8, sample + 1)}
        assert len(in_use) == WINDOW_LAG + 9
        assert not in_use & {later % layout.places for later in range(sample + 1, sample + 17)}


def test_a_picture_is_found_under_its_sequence_number_only():
    layout = plan_window(2, 2, 8)
    window = Window(layout, np.zeros(layout.total_bytes, np.uint8), empty_heads(layout))
    picture = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    window.put(7, 3, picture)
    np.testing.assert_array_equal(window.get(7, 3), picture)
    assert window.get(8, 3) is None
    assert window.get(7, 4) is None
    window.put(7 + layout.places, 4, picture[:2])
    assert window.get(7, 3) is None


def test_a_picture_larger_than_its_place_leaves_the_next_place_alone():
    layout = plan_window(1, 1, imgsz=32)
    window = Window(layout, np.zeros(layout.total_bytes, np.uint8), empty_heads(layout))
    window.put(1, 7, np.full((8, 8, 3), 5, np.uint8))
    window.put(0, 6, np.full((200, 200, 3), 9, np.uint8))
    assert window.get(0, 6) is None
    kept = window.get(1, 7)
    assert kept is not None
    assert (kept == 5).all()
