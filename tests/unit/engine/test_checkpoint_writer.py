"""Checkpoints are written in the background, the newest content of each file."""

import os
from pathlib import Path

import torch

from yolov9.engine.atomic_file import TEMPORARY_SUFFIX
from yolov9.engine.checkpoint_writer import CheckpointWriter, WriteJob


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
