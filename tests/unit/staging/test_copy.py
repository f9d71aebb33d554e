"""A copy reads as the original does, is whole or not there, and is gone at the end."""

import hashlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from entrypoint.staging import copy as copy_module
from entrypoint.staging.files import FORMAT, DataFiles, StageError, find_files
from entrypoint.staging.hold import data_copy
from entrypoint.staging.share import MARKER
from entrypoint.stop_signals import stop_is_interrupt
from yolov9.config.environment import Environment
from yolov9.data import DatasetIndex, load_dataset_config

Find = Callable[[], DataFiles]
LeftIn = Callable[[], list[str]]


def fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        status = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        digest.update(f"{path} {status.st_mtime_ns} {status.st_ctime_ns}".encode() + content)
    return digest.hexdigest()


def index(data: str, split: str) -> DatasetIndex:
    return DatasetIndex.build(load_dataset_config(data), split, cache_dir=None)


@pytest.mark.parametrize("split", ["train", "val"])
def test_the_copy_has_the_same_pictures_and_labels_in_the_same_order(
    data: Path, target: Path, environment: Environment, split: str
) -> None:
    original = index(str(data), split)
    with data_copy(str(data), str(target), environment) as copy:
        staged = index(copy, split)
        assert staged.names == original.names == ("no", "yes: x")
        assert np.array_equal(staged.labels, original.labels)
        assert np.array_equal(staged.label_offsets, original.label_offsets)
        for number in range(len(original)):
            assert staged.path(number).endswith(original.path(number))
            assert staged.path(number).startswith(str(target))
            assert Path(staged.path(number)).read_bytes() == Path(original.path(number)).read_bytes()


def test_p31_nothing_is_written_into_the_data_set(data: Path, target: Path, environment: Environment) -> None:
    before = fingerprint(data.parent)
    with data_copy(str(data), str(target), environment):
        pass
    assert fingerprint(data.parent) == before


def test_the_copy_is_removed_at_the_end(data: Path, target: Path, environment: Environment, left_in: LeftIn) -> None:
    with data_copy(str(data), str(target), environment):
        assert len(left_in()) == 2
    assert left_in() == []


def test_the_copy_is_removed_after_an_error(
    data: Path, target: Path, environment: Environment, left_in: LeftIn
) -> None:
    with pytest.raises(RuntimeError, match="trainer"), data_copy(str(data), str(target), environment):
        raise RuntimeError("trainer")
    assert left_in() == []


def test_a_stop_while_copying_leaves_nothing(
    data: Path, target: Path, environment: Environment, left_in: LeftIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = copy_module._copy_one

    def stopped(*arguments: object) -> None:
        copied(*arguments)  # type: ignore[arg-type]  # passed on as they came
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(copy_module, "_copy_one", stopped)
    with pytest.raises(KeyboardInterrupt), stop_is_interrupt(), data_copy(str(data), str(target), environment):
        raise AssertionError("the stop was not heard")
    assert left_in() == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_no_room_while_copying_means_the_original(
    data: Path,
    target: Path,
    environment: Environment,
    left_in: LeftIn,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device", "here")

    monkeypatch.setattr(copy_module, "_copy_one", full)
    monkeypatch.setattr("yolov9.logs.LOG.propagate", True)
    with data_copy(str(data), str(target), environment) as copy:
        assert copy == ""
    assert "No space left on device; the original is used" in caplog.text
    assert left_in() == []


def test_a_file_that_changes_while_it_is_copied_means_the_original(
    data: Path, target: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_files(str(data), environment)
    label = data.parent / "labels" / "train" / "bild 1 ü.txt"
    label.write_text("0 0.1 0.1 0.1 0.1\n")
    monkeypatch.setattr("entrypoint.staging.hold.find_files", lambda *arguments: found)
    with data_copy(str(data), str(target), environment) as copy:
        assert copy == ""


@pytest.mark.parametrize("same_time", [False, True])
def test_p08_a_changed_file_makes_another_version(data: Path, find: Find, same_time: bool) -> None:
    before = find()
    label = data.parent / "labels" / "train" / "bild 1 ü.txt"
    times = label.stat()
    label.write_text(label.read_text().replace("1 ", "0 ", 1))
    if same_time:
        os.utime(label, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert find().key != before.key


@pytest.mark.parametrize(
    "text", ["train: images/train\nval: val.txt\nnames: [a, b]\n", "train: images\nval: val.txt\nnames: [no, 'yes: x']"]
)
def test_another_data_yaml_makes_another_version(data: Path, find: Find, text: str) -> None:
    before = find()
    data.write_text(text)
    assert find().key != before.key


def test_p08_a_stale_copy_is_not_used_and_goes_when_nobody_uses_it(
    data: Path, target: Path, environment: Environment, left_in: LeftIn
) -> None:
    with data_copy(str(data), str(target), environment) as old:
        (data.parent / "labels" / "train" / "bild 1 ü.txt").write_text("0 0.5 0.5 0.1 0.1\n")
        with data_copy(str(data), str(target), environment) as new:
            assert old != new
            assert not np.array_equal(index(old, "train").labels, index(new, "train").labels)
    assert left_in() == []


@pytest.mark.parametrize("damage", ["no marker", "another format", "a file is cut", "a file is gone"])
def test_p08_a_partial_copy_is_made_anew(
    data: Path, target: Path, environment: Environment, find: Find, damage: str
) -> None:
    with data_copy(str(data), str(target), environment) as copy:
        folder = Path(copy).parent
        folder.rename(folder.with_name("kept"))
    kept = folder.with_name("kept")
    picture = next(kept.rglob("*.png"))
    if damage == "no marker":
        (kept / MARKER).unlink()
    elif damage == "another format":
        (kept / MARKER).write_text((kept / MARKER).read_text().replace(FORMAT, "yolov9-stage-0"))
        (kept / "old").touch()
    elif damage == "a file is cut":
        picture.write_bytes(picture.read_bytes()[:50])
    else:
        picture.unlink()
    kept.rename(folder)
    with data_copy(str(data), str(target), environment) as copy:
        assert Path(copy).parent == folder
        assert len(index(copy, "train")) == 8
        assert not (folder / "old").exists()


def test_what_is_no_ordinary_file_is_refused(data: Path, find: Find) -> None:
    os.mkfifo(data.parent / "images" / "train" / "pipe.png")
    with pytest.raises(StageError, match=r"pipe\.png"):
        find()


def test_a_folder_of_somebody_else_is_not_used(
    data: Path, target: Path, environment: Environment, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (target / f"yolov9-stage-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with data_copy(str(data), str(target), environment) as copy:
        assert copy == ""
    assert not list((tmp_path / "elsewhere").iterdir())
