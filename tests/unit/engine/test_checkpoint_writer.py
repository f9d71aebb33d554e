"""Checkpoints are written in the background, the newest content of each file."""

import os
import threading
from pathlib import Path

import pytest
import torch

from yolov9.engine.atomic_file import TEMPORARY_SUFFIX
from yolov9.engine.checkpoint_writer import MOST_WAITING, CheckpointWriter, WriteJob


class Unwritable:
    """Runs out of memory when it is written."""

    def __reduce__(self) -> str:
        raise RuntimeError("DefaultCPUAllocator: not enough memory")


def test_a_newer_content_takes_the_place_of_one_that_still_waits(tmp_path: Path) -> None:
    """The first file is written into a pipe, which holds the writer up until somebody reads."""
    slow, last, best = tmp_path / "slow.pt", tmp_path / "last.pt", tmp_path / "best.pt"
    pipe = slow.with_name(slow.name + TEMPORARY_SUFFIX)
    os.mkfifo(pipe)
    with CheckpointWriter() as writer:
        writer.submit(WriteJob(slow, {"epoch": 0}))
        for epoch in (1, 2, 3):
            writer.submit(WriteJob(last, {"epoch": epoch}, keep_previous=True))
            writer.submit(WriteJob(best, {"epoch": epoch}))
        assert not last.exists()
        with pipe.open("rb") as reader:
            reader.read()
    assert torch.load(last, weights_only=True) == {"epoch": 3}
    assert torch.load(best, weights_only=True) == {"epoch": 3}
    assert not (tmp_path / "last-previous.pt").exists(), "the first two were never written"


def test_everything_is_written_when_waiting_ends(tmp_path: Path) -> None:
    with CheckpointWriter() as writer:
        for number in range(20):
            writer.submit(WriteJob(tmp_path / f"{number}.pt", {"number": number}))
        writer.wait()
        assert [torch.load(tmp_path / f"{n}.pt", weights_only=True)["number"] for n in range(20)] == list(range(20))
        writer.submit(WriteJob(tmp_path / "later.pt", {}))
    assert (tmp_path / "later.pt").exists()


def test_a_failed_file_is_remembered_though_another_one_was_written_after_it(tmp_path: Path) -> None:
    """last.pt keeps its place in the queue, so its last content may be written before best.pt."""
    slow, absent, best = tmp_path / "slow.pt", tmp_path / "absent" / "last.pt", tmp_path / "best.pt"
    pipe = slow.with_name(slow.name + TEMPORARY_SUFFIX)
    os.mkfifo(pipe)
    with CheckpointWriter() as writer:
        for path in (slow, absent, best, absent):
            writer.submit(WriteJob(path, {}))
        with pipe.open("rb") as reader:
            reader.read()
        writer.wait()
        assert best.exists()
        assert absent in writer.errors
        assert best not in writer.errors
        absent.parent.mkdir()
        writer.submit(WriteJob(absent, {}))
        writer.wait()
        assert absent not in writer.errors


def test_a_write_that_runs_out_of_memory_does_not_end_the_thread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with CheckpointWriter() as writer:
        writer.submit(WriteJob(tmp_path / "last.pt", {"weights": Unwritable()}))
        writer.submit(WriteJob(tmp_path / "best.pt", {}))
        writer.wait()
        assert (tmp_path / "best.pt").exists()
        assert "last.pt could not be written: DefaultCPUAllocator: not enough memory" in caplog.text
        assert set(writer.errors) == {tmp_path / "last.pt"}


def test_a_disk_that_hangs_does_not_fill_the_memory_with_files_of_save_period(tmp_path: Path) -> None:
    names = [f"epoch{number}.pt" for number in range(MOST_WAITING + 2)]
    pipe = tmp_path / (names[0] + TEMPORARY_SUFFIX)
    os.mkfifo(pipe)
    all_submitted = threading.Event()
    with CheckpointWriter() as writer:

        def train() -> None:
            for name in names:
                writer.submit(WriteJob(tmp_path / name, {}))
            all_submitted.set()

        training = threading.Thread(target=train)
        training.start()
        assert not all_submitted.wait(0.2)
        with pipe.open("rb") as reader:
            reader.read()
        training.join()
    assert all((tmp_path / name).exists() for name in names[1:])
