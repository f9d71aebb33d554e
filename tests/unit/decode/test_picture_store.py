"""Memory for decoded pictures: what is said to be there is there, unharmed."""

import numpy as np
import pytest
import torch

from yolov9.engine.picture_store import PictureStore


def test_pictures_keep_their_pixels_until_they_are_forgotten():
    store, rng, sizes = PictureStore(50_000, torch.device("cpu")), np.random.default_rng(0), {}
    for number in range(400):
        height, width = (int(side) for side in rng.integers(1, 90, 2))
        sizes[number] = height, width
        store.room_for(number, height, width).fill_(number % 251)
        there = [n for n in sizes if n in store]
        assert number in there
        for n in there:
            place = store[n]
            assert (place.height, place.width) == sizes[n]
            pixels = store.memory[place.start : place.start + 3 * place.height * place.width]
            assert (pixels == n % 251).all()


def test_the_oldest_picture_gives_way():
    store = PictureStore(3 * 100 * 3 + 32, torch.device("cpu"))
    for number in range(4):
        store.room_for(number, 10, 10)
    assert [number in store for number in range(4)] == [False, True, True, True]


def test_a_picture_larger_than_the_memory_is_refused():
    with pytest.raises(ValueError, match="200x100"):
        PictureStore(1000, torch.device("cpu")).room_for(0, 100, 200)
