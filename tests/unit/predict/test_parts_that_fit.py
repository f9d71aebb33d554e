"""Validation and detection when memory runs out: the same results, in smaller parts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from yolov9.config.settings import DetectSettings, ValSettings
from yolov9.engine import detect, val_command
from yolov9.engine.detector import Detector, DetectorOptions
from yolov9.engine.out_of_memory import MOST_TRIES_OF_ONE, NoRoomError
from yolov9.engine.parts_that_fit import PartsThatFit
from yolov9.errors import ExitCode, UserError
from yolov9.model import build_model

CPU = torch.device("cpu")


def card(pictures: int, seen: list[int]) -> Callable[[slice], range]:
    """Work on a card that holds so many pictures."""

    def work(part: slice) -> range:
        count = part.stop - part.start
        seen.append(count)
        if count > pictures:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return range(part.start, part.stop)

    return work


@pytest.mark.parametrize("fitting", [1, 2, 3, 8, 16])
def test_every_picture_is_done_once_and_in_order(fitting: int) -> None:
    results = PartsThatFit(CPU, "validation")(card(fitting, []), 13)
    assert [number for part in results for number in part] == list(range(13))


def test_the_size_that_fitted_is_kept_for_the_next_batch() -> None:
    parts, seen = PartsThatFit(CPU, "validation"), []
    parts(card(4, seen), 16)
    first = len(seen)
    parts(card(4, seen), 16)
    assert seen[:first] == [16, 8, 4, 4, 4, 4]
    assert seen[first:] == [4, 4, 4, 4]


def test_room_is_made_before_one_picture_is_given_up() -> None:
    calls: list[str] = []
    with pytest.raises(NoRoomError, match="validation of one picture"):
        PartsThatFit(CPU, "validation", lambda: calls.append("room"))(card(0, []), 4)
    assert calls == ["room"] * (MOST_TRIES_OF_ONE - 1)


def test_other_errors_pass() -> None:
    def work(part: slice) -> None:
        raise RuntimeError("size mismatch")

    with pytest.raises(RuntimeError, match="size mismatch"):
        PartsThatFit(CPU, "validation")(work, 4)


def test_detection_in_parts_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = build_model("gelan-t", nc=3)
    detector = Detector(model, "cpu", DetectorOptions(imgsz=64, conf=0.001))
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 255, (64, 64, 3), dtype=np.uint8) for _ in range(5)]
    expected = detector.predict_batch(pictures)
    network = detector._model

    def small_card(batch: torch.Tensor) -> Any:
        if len(batch) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return network(batch)

    monkeypatch.setattr(detector, "_model", small_card)
    found = detector.predict_batch(pictures)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.boxes, other.boxes, atol=1e-3)
        np.testing.assert_allclose(one.scores, other.scores, rtol=1e-4)


@pytest.mark.parametrize(
    ("command", "settings", "loads"),
    [
        (detect, DetectSettings(device="cpu"), "detect_files"),
        (val_command, ValSettings(device="cpu"), "validate_split"),
    ],
)
def test_a_card_too_full_for_the_model_is_a_user_error_with_options_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any, settings: Any, loads: str
) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(command, loads, full)
    with pytest.raises(UserError) as caught:
        command.run(settings, tmp_path)
    assert caught.value.exit_code == ExitCode.NO_GPU
    assert "--resume" not in caught.value.remedy
