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


def _from_list(folder: Path, content: bytes) -> list[str]:
    (folder / "images").mkdir(exist_ok=True)
    (folder / "images" / "a.jpg").touch()
    (folder / "train.txt").write_bytes(content)
    return list_pictures((folder / "train.txt",), folder)


@pytest.mark.parametrize(
    "content",
    [
        "images/a.jpg\r\n".encode("utf-16"),
        b'"images/a.jpg"\n',
        b"data/images/a.jpg\n",
        b"images\\a.jpg\r\n",
    ],
    ids=["PowerShell", "quoted", "with the folder that CVAT adds", "Windows"],
)
def test_lists_as_other_programs_write_them_are_read(content: bytes, tmp_path: Path) -> None:
    assert _from_list(tmp_path, content) == [str(tmp_path / "images" / "a.jpg")]


def test_lines_of_a_list_that_name_no_picture_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert len(_from_list(tmp_path, b"images/a.jpg\nimages/b\nimages/c.jpg 10,10,20,20,0\n")) == 1
    assert "2 lines name no picture" in caplog.text
    assert "'images/b'" in caplog.text
