"""The embedded data set: the same for the same seed, complete or not there, usable."""

import hashlib

import numpy as np
import pytest

from yolov9.config.environment import Environment
from yolov9.data import DatasetIndex, load_dataset_config
from yolov9.data import embedded as embedded_module
from yolov9.data.embedded import embedded_dataset, generate_embedded
from yolov9.data.embedded_objects import OBJECT_NAMES, draw_object
from yolov9.data.embedded_scene import LEAST_VISIBLE, SIZE_RANGE, draw_scene
from yolov9.errors import ExitCode, UserError

FEW = {"train": 6, "val": 3}


def _hash(folder):
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def test_same_seed_gives_the_same_files_and_another_seed_others(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        generate_embedded(tmp_path / name, seed, FEW)
    assert _hash(tmp_path / "a") == _hash(tmp_path / "b") != _hash(tmp_path / "c")


def test_set_has_the_stated_pictures_and_all_classes(tmp_path):
    pictures = {"train": 16, "val": 4}
    config = load_dataset_config(str(generate_embedded(tmp_path / "set", 0, pictures)))
    for split, count in pictures.items():
        summary = DatasetIndex.build(config, split, cache_dir=None).summary
        assert (summary.found, summary.used, summary.problems) == (count, count, ())
    train = DatasetIndex.build(config, "train", cache_dir=None)
    assert train.names == OBJECT_NAMES
    assert min(train.summary.boxes_per_class) > 0


def test_train_and_val_pictures_differ(tmp_path):
    folder = generate_embedded(tmp_path / "set", 0, FEW).parent
    assert (folder / "images/train/0000.jpg").read_bytes() != (folder / "images/val/0000.jpg").read_bytes()


def test_interrupted_generation_is_started_again(tmp_path, monkeypatch):
    drawn = []

    def stop_after_four(rng):
        drawn.append(1)
        if len(drawn) == 4:
            raise KeyboardInterrupt
        return draw_scene(rng)

    monkeypatch.setattr(embedded_module, "draw_scene", stop_after_four)
    with pytest.raises(KeyboardInterrupt):
        generate_embedded(tmp_path / "set", 0, FEW)
    assert not (tmp_path / "set").exists()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "set").mkdir()  # as left by something else
    assert generate_embedded(tmp_path / "set", 0, FEW).is_file()


def test_complete_set_is_not_drawn_again(tmp_path, monkeypatch):
    first = generate_embedded(tmp_path / "set", 0, FEW)
    monkeypatch.setattr(embedded_module, "draw_scene", None)
    assert generate_embedded(tmp_path / "set", 0, FEW) == first


def test_set_goes_to_the_temporary_folder_when_the_cache_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(embedded_module, "PICTURES", FEW)
    (tmp_path / "cache").write_text("a file is in the way")
    environment = Environment(cache_dir=tmp_path / "cache", temporary_dir=tmp_path)
    file = embedded_dataset(environment)
    assert file.is_relative_to(tmp_path)
    assert load_dataset_config("", environment=environment).path == file


def test_no_writable_folder_is_an_error_that_says_what_to_set(tmp_path):
    (tmp_path / "file").touch()
    environment = Environment(cache_dir=tmp_path / "file", temporary_dir=tmp_path / "file")
    with pytest.raises(UserError) as caught:
        embedded_dataset(environment)
    assert caught.value.exit_code == ExitCode.OUTPUT_NOT_WRITABLE
    assert "YOLOV9_CACHE_DIR" in caught.value.remedy


def test_boxes_lie_in_the_picture_and_have_the_size_of_objects():
    for seed in range(10):
        scene = draw_scene(np.random.default_rng(seed))
        low = scene.labels[:, 1:3] - scene.labels[:, 3:5] / 2
        high = scene.labels[:, 1:3] + scene.labels[:, 3:5] / 2
        assert (low >= -1e-9).all()
        assert (high <= 1 + 1e-9).all()
        assert (scene.labels[:, 3:5] > SIZE_RANGE[0] * LEAST_VISIBLE / 4).all()


def test_objects_fill_their_square_and_can_be_told_apart_by_colour():
    rng = np.random.default_rng(0)
    means = []
    for kind in range(len(OBJECT_NAMES)):
        sprite = draw_object(kind, 64, rng)
        assert sprite.alpha.max() == pytest.approx(1, abs=0.01)
        assert sprite.alpha.mean() > 0.15
        means.append(sprite.colour[sprite.alpha > 0.5].mean(axis=0))
    distances = [np.abs(first - second).sum() for place, first in enumerate(means) for second in means[:place]]
    assert min(distances) > 0.2
