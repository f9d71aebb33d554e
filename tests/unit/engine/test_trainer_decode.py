"""Runs whose training pictures are drawn on the device, which here is the CPU."""

from collections.abc import Callable
from pathlib import Path

import cv2
import pytest
import torch

from yolov9.engine.checkpoint import read_training_checkpoint
from yolov9.errors import ExitCode

Train = Callable[..., ExitCode]


@pytest.fixture
def as_jpegs(tiny_data: Path, tmp_path: Path) -> Path:
    """data.yaml of the tiny data set with JPEGs in place of PNGs."""
    folder = tmp_path / "jpegs"
    for path in sorted(tiny_data.parent.rglob("*.*")):
        target = folder / path.relative_to(tiny_data.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".png":
            cv2.imwrite(str(target.with_suffix(".jpg")), cv2.imread(str(path)))
        else:
            target.write_bytes(path.read_bytes())
    return folder / "data.yaml"


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    model: dict[str, torch.Tensor] = read_training_checkpoint(run / "weights" / "last.pt")["model"]
    return model


def test_a_stopped_and_resumed_run_is_the_same_run(tmp_path: Path, train: Train, as_jpegs: Path) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    assert train(straight, data=as_jpegs, decode="gpu") == ExitCode.DONE
    assert train(broken, data=as_jpegs, decode="gpu", stop_after=2) == ExitCode.STOPPED_RESUMABLE
    assert train(broken, data=as_jpegs, decode="gpu", resume=str(broken)) == ExitCode.DONE
    one, two = weights_of(straight), weights_of(broken)
    assert [name for name in one if not torch.equal(one[name], two[name])] == []


def test_pictures_that_are_no_jpegs_are_decoded_by_the_workers(
    tmp_path: Path, train: Train, finished_run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert train(tmp_path, decode="gpu") == ExitCode.DONE
    assert "0 % of the training pictures are JPEGs" in caplog.text
    one, two = weights_of(finished_run), weights_of(tmp_path)
    assert [name for name in one if not torch.equal(one[name], two[name])] == []
