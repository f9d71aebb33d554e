"""The decoded cache: same pictures, less decoding, and never trusted blindly."""

import json

import cv2
import numpy as np
import pytest

from yolov9.data.cache import HEADER_BYTES, limited_hw, plan_cache
from yolov9.data.loader import open_loader

ONE_PICTURE = 160 * 120 * 3


@pytest.fixture
def cached(settings, tmp_path):
    """Function: settings with a cache."""

    def make(kind="disk", **changes):
        return settings(cache=kind, cache_dir=tmp_path / "cache", **changes)

    return make


def cache_file(tmp_path):
    (path,) = (tmp_path / "cache").glob("*.cache")
    return path


def remove_pictures(images):
    for path in images.iterdir():
        path.unlink()


@pytest.mark.parametrize("kind", ["ram", "disk"])
@pytest.mark.parametrize("mode", ["train", "val"])
def test_batches_are_the_same_with_and_without_cache(settings, cached, contents, kind, mode):
    """At a size that no picture exceeds, the cache holds the files' own pixels."""
    with open_loader(settings(imgsz=256, mode=mode)) as loader:
        expected = contents(loader.epoch(0))
    with open_loader(cached(kind, imgsz=256, mode=mode)) as loader:
        assert contents(loader.epoch(0)) == expected
        assert contents(loader.epoch(0)) == expected


@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_batches_are_the_same_for_any_number_of_workers(cached, contents, kind):
    found = []
    for workers in (0, 2):
        with open_loader(cached(kind, workers=workers)) as loader:
            found.append(contents(loader.epoch(0)) + contents(loader.epoch(1)))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_later_epochs_do_not_read_the_files(new_data_set, cached, contents, kind):
    index, images = new_data_set(12)
    with open_loader(cached(kind, index=index, mode="val")) as loader:
        first = contents(loader.epoch(0))
        remove_pictures(images)
        assert [batch[2:] for batch in contents(loader.epoch(1))] == [batch[2:] for batch in first]


def test_a_later_run_uses_the_file(cached, contents, tmp_path, caplog):
    caplog.set_level("INFO")
    with open_loader(cached(mode="val")) as loader:
        first = contents(loader.epoch(0))
    path = cache_file(tmp_path)
    before = path.stat().st_ino
    with open_loader(cached(mode="val")) as loader:
        assert contents(loader.epoch(0)) == first
    assert path.stat().st_ino == before
    assert "made anew" not in caplog.text


def test_a_changed_picture_is_noticed(new_data_set, cached, contents):
    index, images = new_data_set(4)
    with open_loader(cached(index=index, mode="val", imgsz=256)) as loader:
        contents(loader.epoch(0))
    cv2.imwrite(str(images / "p000.png"), np.full((120, 160, 3), 77, np.uint8))
    with open_loader(cached(index=index, mode="val", imgsz=256)) as loader:
        batch = next(loader.epoch(0))
        assert batch.images[0, 128, 128].tolist() == [77, 77, 77]


def test_p03_a_truncated_file_is_made_anew(cached, contents, tmp_path, caplog):
    caplog.set_level("INFO")
    with open_loader(cached(mode="val")) as loader:
        first = contents(loader.epoch(0))
    path = cache_file(tmp_path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size // 2)
    with open_loader(cached(mode="val")) as loader:
        assert contents(loader.epoch(0)) == first
    assert path.stat().st_size == size
    assert "made anew" in caplog.text


@pytest.mark.parametrize("header", [b"", b"{", b"[1]", b'{"layout": {}}', b'{"layout": {"total_bytes": "x"}}'])
def test_a_file_with_a_broken_header_is_made_anew(cached, contents, tmp_path, header):
    with open_loader(cached(mode="val")) as loader:
        first = contents(loader.epoch(0))
    path = cache_file(tmp_path)
    with path.open("r+b") as file:
        file.write(header.ljust(HEADER_BYTES, b"\0"))
    with open_loader(cached(mode="val")) as loader:
        assert contents(loader.epoch(0)) == first
    assert json.loads(path.read_bytes()[:HEADER_BYTES].rstrip(b"\0"))


@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_what_does_not_fit_is_decoded_each_time(cached, contents, settings, caplog, kind):
    caplog.set_level("INFO")
    with open_loader(settings(imgsz=256, mode="val")) as loader:
        expected = contents(loader.epoch(0))
    with open_loader(cached(kind, imgsz=256, mode="val", cache_limit_bytes=5 * ONE_PICTURE)) as loader:
        assert contents(loader.epoch(0)) == expected
        assert contents(loader.epoch(0)) == expected
    assert "of 12 pictures" in caplog.text


def test_two_loaders_share_one_file(new_data_set, cached, contents):
    index, images = new_data_set(4)
    both = cached(index=index, mode="val")
    with open_loader(both) as first, open_loader(both) as second:
        made = contents(first.epoch(0))
        remove_pictures(images)
        assert contents(second.epoch(0)) == made


def test_a_folder_that_cannot_be_written_turns_the_cache_off(settings, contents, tmp_path, caplog):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    with open_loader(settings(cache="disk", cache_dir=blocked / "cache")) as loader:
        assert len(contents(loader.epoch(0))) == 3
    assert "cache off" in caplog.text


def test_nothing_is_written_into_the_data_set(new_data_set, cached, contents):
    index, images = new_data_set(4)
    before = sorted(path for path in images.parent.rglob("*"))
    with open_loader(cached(index=index)) as loader:
        contents(loader.epoch(0))
    assert sorted(path for path in images.parent.rglob("*")) == before


def test_places_follow_the_sizes_that_are_kept():
    sizes = np.array(((100, 50), (2000, 1000), (31, 700), (640, 640)), np.int32)
    layout, offsets = plan_cache(sizes, 640, None)
    areas = [height * width * 3 for height, width in (limited_hw((h, w), 640) for w, h in sizes.tolist())]
    assert np.diff(offsets).tolist() == areas
    assert layout.kept == 4
    smaller, _ = plan_cache(sizes, 640, layout.total_bytes - 1)
    assert smaller.kept == 3
    assert plan_cache(sizes, 640, 0)[0].kept == 0
