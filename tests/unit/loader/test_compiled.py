"""The library in C: what happens without a compiler, with one that fails, and with what an earlier run kept."""

import pytest

from yolov9.data import compiled as module
from yolov9.data.brush import OPENCV
from yolov9.data.compiled import share_library
from yolov9.data.compiled_brush import load_brush


@pytest.fixture(autouse=True)
def compile_again():
    module._library.cache_clear()
    yield
    module._library.cache_clear()


def test_without_a_compiler_opencv_does_it_and_that_is_said(monkeypatch, tmp_path, caplog):
    caplog.set_level("INFO")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert load_brush(share_library(None)) is OPENCV
    assert "no C compiler" in caplog.text


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo no such processor >&2; exit 1", "no such processor"),
        ("printf '\\377\\376' >&2; exit 1", "compiling failed"),
        ("sleep 1000 & wait", "timed out"),
        ('echo no library > "${@: -1}"', "made no library"),
        ("exit 0", "compiling failed"),
    ],
)
def test_a_compiler_that_fails_is_said(monkeypatch, tmp_path, caplog, script, words):
    """In any way: messages in no known letters, one that hangs with what it started, and one that does nothing."""
    caplog.set_level("INFO")
    broken = tmp_path / "cc"
    broken.write_text(f"#!/bin/bash\n{script}\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(module, "COMPILE_TIMEOUT_S", 2.0)
    kept = tmp_path / "kept"
    assert load_brush(share_library(kept)) is OPENCV
    assert words in caplog.text
    assert not list(kept.iterdir()), "nothing that failed is kept"


def test_the_result_is_kept_for_later_runs(compiled_brush, tmp_path):
    module._library.cache_clear()
    first = share_library(tmp_path)
    (kept,) = tmp_path.iterdir()
    before = kept.stat().st_ino
    module._library.cache_clear()
    assert load_brush(share_library(tmp_path)) is not OPENCV
    assert first is not None
    assert [path.stat().st_ino for path in tmp_path.iterdir()] == [before]


def test_a_kept_file_that_others_may_write_is_not_loaded(compiled_brush, tmp_path):
    module._library.cache_clear()
    share_library(tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(b"something else")
    kept.chmod(0o666)
    module._library.cache_clear()
    assert load_brush(share_library(tmp_path)) is not OPENCV
    assert kept.read_bytes() != b"something else"


def test_a_cache_folder_that_cannot_be_made_is_done_without(compiled_brush, tmp_path):
    module._library.cache_clear()
    (tmp_path / "file").write_text("")
    assert load_brush(share_library(tmp_path / "file" / "cache")) is not OPENCV


@pytest.mark.parametrize("part", [0.0, 0.5])
def test_a_part_of_a_kept_file_is_not_loaded(compiled_brush, tmp_path, part):
    """A power cut may leave one; code that is cut off would end every loader process."""
    module._library.cache_clear()
    share_library(tmp_path)
    (kept,) = tmp_path.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[: int(part * len(whole))])
    module._library.cache_clear()
    assert load_brush(share_library(tmp_path)) is not OPENCV
    assert kept.read_bytes() == whole
