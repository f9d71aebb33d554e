"""The scan cache: never stale, never in the data set, never in the way."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from yolov9.data import DatasetIndex, load_dataset_config
from yolov9.data import scan as scan_module
from yolov9.data.image_check import check_image
from yolov9.data.scan import ImageFacts
from yolov9.data.scan_cache import ScanCache

ROWS = "0 0.5 0.5 0.2 0.2\n"


@pytest.fixture
def data(make_set):
    return make_set({"a": ROWS, "b": ROWS, "c": None})


@pytest.fixture
def checked(monkeypatch):
    """Paths of the pictures whose content is looked at."""
    paths = []

    def check(path):
        paths.append(path)
        return check_image(path)

    monkeypatch.setattr(scan_module, "check_image", check)
    return paths


@pytest.fixture
def build(data, tmp_path):
    def build_index(cache_dir=tmp_path / "cache"):
        return DatasetIndex.build(load_dataset_config(str(data)), "train", cache_dir=cache_dir)

    return build_index


def _tree_hash(folder):
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(str(path).encode() + str(path.stat().st_mtime_ns).encode())
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def _rewrite_unseen(path, content):
    """Changes a file but keeps its size and its time of change."""
    status = path.stat()
    assert len(content) == status.st_size
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _cache_file(tmp_path):
    (file,) = (tmp_path / "cache" / "scans").iterdir()
    return file


def test_second_start_looks_at_no_picture_again(build, checked):
    first = build()
    assert len(checked) == 3
    second = build()
    assert len(checked) == 3
    for name, array in first.arrays().items():
        np.testing.assert_array_equal(array, second.arrays()[name])


def test_label_edit_of_same_size_and_time_is_seen(build, data):
    build()
    _rewrite_unseen(data.parent / "labels" / "train" / "a.txt", ROWS.replace("0 ", "1 ", 1).encode())
    assert build().labels[:, 0].tolist() == [1, 0]


def test_picture_edit_of_same_size_and_time_is_seen(build, data):
    build()
    path = data.parent / "images" / "train" / "a.png"
    _rewrite_unseen(path, b"x" * path.stat().st_size)
    assert build().summary.left_out == {"not a picture that can be read": 1}


def test_new_and_removed_files_are_seen(build, data, checked):
    build()
    images = data.parent / "images" / "train"
    (images / "a.png").rename(images / "d.png")
    del checked[:]
    index = build()
    assert [index.path(number)[-5:] for number in range(3)] == ["b.png", "c.png", "d.png"]
    assert checked == [str(images / "d.png")]


def test_names_swapped_in_the_yaml_take_effect(build, data):
    build()
    data.write_text(data.read_text().replace("[a, b, c]", "[b, a, c]"))
    assert build().names == ("b", "a", "c")


def test_any_flipped_byte_is_noticed_or_harmless(data, tmp_path):
    sources = load_dataset_config(str(data)).sources("train")
    cache = ScanCache(tmp_path, sources)
    facts = {f"/set/images/{number}.png": ImageFacts((number, 2, 3), 40, 30, "a note") for number in range(3)}
    cache.save(facts)
    content = cache.path.read_bytes()
    for place in range(0, len(content), 5):
        cache.path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        assert cache.load() in ({}, facts)


@pytest.mark.parametrize("damage", ["text", "half", "empty", "flipped"])
def test_damaged_cache_is_rebuilt_with_one_line(damage, build, tmp_path, caplog, checked):
    build()
    file = _cache_file(tmp_path)
    content = file.read_bytes()
    middle = content.index(b"a.png")
    file.write_bytes(
        {
            "text": b"no archive",
            "half": content[:middle],
            "empty": b"",
            "flipped": content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :],
        }[damage]
    )
    caplog.clear()
    del checked[:]
    assert len(build()) == 3
    assert len(checked) == 3
    assert [record.levelname for record in caplog.records if "cache" in record.getMessage()] == ["WARNING"]
    build()
    assert len(checked) == 3


def test_cache_of_another_version_is_rebuilt_with_one_line(build, tmp_path, caplog, checked):
    build()
    file = _cache_file(tmp_path)
    with np.load(file, allow_pickle=False) as arrays:
        content = dict(arrays)
    with file.open("wb") as out:
        np.savez(out, **{**content, "format": np.array("yolov9-scan-0")})
    caplog.clear()
    del checked[:]
    build()
    assert len(checked) == 3
    assert sum("another version" in record.getMessage() for record in caplog.records) == 1


def test_cache_holds_no_pickle_and_refuses_one(build, tmp_path, caplog):
    build()
    file = _cache_file(tmp_path)
    with file.open("wb") as out:
        np.savez(out, format=np.array([{"a": 1}], dtype=object))
    assert len(build()) == 3
    assert any("scan cache" in record.getMessage() for record in caplog.records)


def test_nothing_is_written_into_the_data_set(build, data):
    before = _tree_hash(data.parent)
    build()
    build()
    build(cache_dir=None)
    assert _tree_hash(data.parent) == before


def test_works_without_a_cache_folder_and_says_so_once(build, caplog):
    caplog.set_level("INFO")
    assert len(build(cache_dir=None)) == 3
    assert sum("no cache folder" in record.getMessage() for record in caplog.records) == 1


def test_works_with_a_cache_folder_that_cannot_be_written(build, tmp_path, caplog):
    caplog.set_level("INFO")
    (tmp_path / "cache").write_text("a file is in the way")
    assert len(build()) == 3
    assert sum("cache folder" in record.getMessage() for record in caplog.records) == 1


def test_two_processes_may_build_at_the_same_time(data, tmp_path):
    code = (
        "import sys; from pathlib import Path; from yolov9.data import DatasetIndex, load_dataset_config; "
        "index = DatasetIndex.build(load_dataset_config(sys.argv[1]), 'train', cache_dir=Path(sys.argv[2])); "
        "sys.exit(len(index) != 3)"
    )
    command = [sys.executable, "-c", code, str(data), str(tmp_path / "cache")]
    running = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(60) for process in running] == [0, 0]
    assert _cache_file(tmp_path).suffix == ".npz"
