"""Folders of results."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from entrypoint.rundir import make_run_dir, next_run_dir
from yolov9.errors import ExitCode, UserError


def test_numbers_start_at_two_and_gaps_are_used(tmp_path: Path) -> None:
    names = [make_run_dir(tmp_path, "exp").name for _ in range(3)]
    assert names == ["exp", "exp2", "exp3"]
    (tmp_path / "exp2").rmdir()
    assert next_run_dir(tmp_path, "exp").name == make_run_dir(tmp_path, "exp").name == "exp2"


def test_exist_ok_uses_the_folder_again(tmp_path: Path) -> None:
    first = make_run_dir(tmp_path, "exp", exist_ok=True)
    assert make_run_dir(tmp_path, "exp", exist_ok=True) == first == next_run_dir(tmp_path, "exp", exist_ok=True)


def test_jobs_that_start_together_get_folders_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda _: make_run_dir(tmp_path / "runs" / "train", "exp"), range(64)))
    assert len(set(made)) == 64


def test_no_test_file_stays_behind(tmp_path: Path) -> None:
    assert list(make_run_dir(tmp_path, "exp").iterdir()) == []


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(UserError, match="remove or rename the file") as caught:
        make_run_dir(tmp_path / "runs" / "train", "exp")
    assert caught.value.exit_code == ExitCode.OUTPUT_NOT_WRITABLE


def test_user_owner_and_mode_are_in_the_message(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(UserError) as caught:
        make_run_dir(tmp_path / "runs", "exp")
    assert f"user {os.getuid()}:{os.getgid()}" in caught.value.found
    assert "mode 0" in caught.value.found


def test_a_file_in_the_place_of_the_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "exp").touch()
    with pytest.raises(UserError, match=f"remove or rename the file {tmp_path}/exp"):
        make_run_dir(tmp_path, "exp", exist_ok=True)


def test_the_folder_is_named_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    assert next_run_dir(tmp_path / "runs", "exp") == tmp_path / "disk" / "exp"
    assert make_run_dir(tmp_path / "runs", "exp") == tmp_path / "disk" / "exp"


def test_a_link_that_leads_to_itself_is_an_error_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "runs").symlink_to(tmp_path / "runs")
    assert next_run_dir(tmp_path / "runs" / "train", "exp").name == "exp"
    with pytest.raises(UserError) as caught:
        make_run_dir(tmp_path / "runs" / "train", "exp")
    assert caught.value.exit_code == ExitCode.OUTPUT_NOT_WRITABLE


def test_an_error_names_the_real_folder(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "train").write_text("")
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    with pytest.raises(UserError) as caught:
        make_run_dir(tmp_path / "runs" / "train", "exp")
    assert caught.value.found.startswith(f"{tmp_path / 'disk' / 'train'}: ")
