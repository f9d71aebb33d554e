"""Which files of a folder are pictures, and what is said of folders that cannot be listed."""

import os
import threading
from pathlib import Path

import pytest

from yolov9 import read_watch
from yolov9.data import listing
from yolov9.data.listing import list_pictures
from yolov9.errors import DataError


def _listed(folder: Path) -> list[str]:
    return [os.path.relpath(path, folder) for path in list_pictures((folder,), folder)]


def test_a_picture_has_a_name_before_its_suffix(tmp_path: Path) -> None:
    for name in ("jpg", "x.jpg.txt", "x.", "a.b.JPG", ".jpg", "z.png"):
        (tmp_path / name).touch()
    assert _listed(tmp_path) == ["a.b.JPG", "z.png"]


def test_links_that_lead_to_each_other_are_no_folders(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    (tmp_path / "z.png").touch()
    assert _listed(tmp_path) == ["z.png"]


def test_a_link_that_cannot_be_followed_is_named(tmp_path: Path) -> None:
    (tmp_path / "odd").symlink_to("x" * 300)  # longer than any file system takes; to root no folder is closed
    with pytest.raises(DataError, match="odd"):
        list_pictures((tmp_path,), tmp_path)


def test_a_large_folder_is_not_taken_for_a_mount_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "ENTRIES_BETWEEN_SIGNS", 2)
    for number in range(4):
        (tmp_path / f"{number}.png").touch()
    signs = [read_watch._reading[threading.get_ident()] for _ in listing._walk(str(tmp_path), set())]
    assert len(set(signs)) == 3
