"""The loader with real worker processes: the same batches whatever happens."""

import os

import cv2
import numpy as np
import pytest

from yolov9.data.index import DatasetIndex
from yolov9.data.loader import open_loader


def test_batches_are_identical_for_any_number_of_workers(settings, contents):
    found = []
    for workers in (0, 1, 4, 16):
        with open_loader(settings(workers=workers, epochs=2)) as loader:
            found.append(contents(loader.epoch(0)) + contents(loader.epoch(1)))
    assert len(found[0]) == 6
    assert all(batches == found[0] for batches in found)


def test_a_start_in_mid_epoch_gives_the_rest_of_the_epoch(settings, contents):
    with open_loader(settings()) as loader:
        whole = contents(loader.epoch(3))
    with open_loader(settings(workers=1)) as loader:
        assert contents(loader.epoch(3, start_batch=1)) == whole[1:]


def test_an_epoch_that_was_left_does_not_disturb_the_next(settings, contents):
    with open_loader(settings()) as loader:
        whole = contents(loader.epoch(0))
        for _ in range(3):
            left = loader.epoch(1)
            next(left).release()
            left.close()
            assert contents(loader.epoch(0)) == whole


def test_the_next_epoch_is_prepared_while_this_one_ends(settings):
    with open_loader(settings(epochs=2, slots=3)) as loader:
        for batch in loader.epoch(0):
            batch.release()
        first = next(loader.epoch(1))
        assert (first.epoch, first.number) == (1, 0)
        assert loader.batches_asked > 3


def test_the_last_batch_is_smaller(settings):
    with open_loader(settings(batch_size=5)) as loader:
        sizes = []
        for batch in loader.epoch(0):
            sizes.append(len(batch.images))
            batch.release()
    assert sizes == [5, 5, 2]
    assert loader.batches_per_epoch == 3


def test_a_batch_may_have_more_pictures_than_a_message_has_room_for_numbers(settings, boxes_index):
    count = 12_000
    arrays = boxes_index.arrays()
    end = int(arrays["path_offsets"][1])
    one_file = {
        "path_bytes": np.tile(arrays["path_bytes"][:end], count),
        "path_offsets": np.arange(count + 1) * end,
        "sizes": np.tile(arrays["sizes"][:1], (count, 1)),
        "label_offsets": np.zeros(count + 1, np.int64),
    }
    index = DatasetIndex.from_arrays({**arrays, **one_file})
    with open_loader(settings(index=index, batch_size=count, workers=2, slots=1, imgsz=32, mode="val")) as loader:
        batch = next(loader.epoch(0))
        assert batch.indices.tolist() == list(range(count))


def test_a_batch_has_pictures_targets_and_numbers(settings):
    with open_loader(settings()) as loader:
        batch = next(loader.epoch(0))
        assert tuple(batch.images.shape) == (4, 96, 96, 3)
        assert str(batch.images.dtype) == "torch.uint8"
        assert batch.targets.shape[1] == 6
        assert set(batch.targets[:, 0].tolist()) <= {0.0, 1.0, 2.0, 3.0}
        assert batch.indices.tolist() == [int(n) for n in batch.indices]
        assert batch.wait_s >= 0


def test_targets_stay_valid_after_release(settings):
    with open_loader(settings(slots=1)) as loader:
        batches = loader.epoch(0)
        first = next(batches)
        before = first.targets.clone()
        first.release()
        next(batches)
        assert first.targets.equal(before)


def test_ranks_share_an_epoch(settings):
    shown = []
    for rank in range(2):
        with open_loader(settings(batch_size=3, rank=rank, world=2)) as loader:
            assert loader.batches_per_epoch == 2
            for batch in loader.epoch(0):
                shown += batch.indices.tolist()
                batch.release()
    assert sorted(shown) == list(range(12))


def test_rectangular_validation_batches(settings):
    with open_loader(settings(mode="val", rect=True)) as loader:
        shapes = set()
        for batch in loader.epoch(0):
            shapes.add(tuple(batch.images.shape[1:3]))
            assert len(batch.shapes) == len(batch.images)
            batch.release()
    assert all(side % 32 == 0 for shape in shapes for side in shape)
    assert len(shapes) > 1


def test_holding_all_batches_is_an_error_and_not_a_hang(settings):
    with open_loader(settings(slots=2, batch_size=2)) as loader:
        batches = loader.epoch(0)
        held = [next(batches), next(batches)]
        with pytest.raises(RuntimeError, match="release"):
            next(batches)
        assert len(held) == 2


def test_releasing_twice_gives_the_slot_back_once(settings, contents):
    with open_loader(settings(slots=2)) as loader:
        whole = contents(loader.epoch(0))
        for batch in loader.epoch(1):
            batch.release()
            batch.release()
        assert contents(loader.epoch(0)) == whole


def test_a_slot_in_use_is_not_written_to(settings):
    with open_loader(settings(slots=2, batch_size=2)) as loader:
        batches = loader.epoch(0)
        held = next(batches)
        before = held.images.clone()
        for _ in range(4):
            next(batches).release()
        assert held.images.equal(before)


def test_the_number_of_workers_can_change(settings, contents):
    with open_loader(settings(workers=1)) as loader:
        whole = contents(loader.epoch(0))
        loader.set_workers(3)
        assert contents(loader.epoch(0)) == whole
        assert len(loader.worker_pids) == 3
        loader.set_workers(2)
        assert contents(loader.epoch(0)) == whole


def test_wrong_settings_are_named(settings):
    with pytest.raises(ValueError, match="rank = 2"):
        settings(rank=2, world=2)
    with pytest.raises(ValueError, match="batch_size = 0"):
        settings(batch_size=0)


def test_pictures_are_rgb(new_data_set, settings):

    index, images = new_data_set(1)
    blue = np.zeros((120, 160, 3), np.uint8)
    blue[..., 0] = 200
    cv2.imwrite(str(images / "p000.png"), blue)
    with open_loader(settings(index=index, mode="val", workers=1)) as loader:
        batch = next(loader.epoch(0))
        assert batch.images[0, 48, 48].tolist() == [0, 0, 200]


@pytest.mark.parametrize("slots", [3, 4])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_validation_that_fits_into_the_ring_is_made_once(settings, contents, workers, slots):
    """Its pictures are not even looked at again."""
    with open_loader(settings(mode="val", workers=workers, epochs=3, slots=slots)) as loader:
        assert loader.batches_per_epoch == 3
        first = contents(loader.epoch(0))
        left = loader.epoch(0)
        next(left).release()
        left.close()
        assert contents(loader.epoch(0)) == first
        asked = loader.batches_asked
        assert contents(loader.epoch(0)) == first
        assert loader.batches_asked == asked


def test_the_next_validation_is_prepared_ahead_and_is_the_same(settings, contents):
    with open_loader(settings(mode="val", epochs=3, slots=2)) as loader:
        first = contents(loader.epoch(0))
        while not loader.all_prepared or loader.worker_pids:  # the processes end once all is prepared
            os.sched_yield()
        assert contents(loader.epoch(0)) == first
        assert contents(loader.epoch(0)) == first


def test_a_validation_that_is_not_repeated_prepares_nothing_more(settings, contents):
    with open_loader(settings(mode="val")) as loader:
        contents(loader.epoch(0))
        assert loader.batches_asked == loader.batches_per_epoch
