"""Starting a training from a checkpoint: what is taken over, what starts fresh, and what is said."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from yolov9.model import Checkpoint, DetectionModel, build_model, convert, read_checkpoint, transfer


@pytest.fixture
def checkpoint_of(tmp_path: Path) -> Callable[[DetectionModel], Checkpoint]:
    def save_and_read(model: DetectionModel) -> Checkpoint:
        torch.save(model.state_dict(), tmp_path / "source.pt")
        return read_checkpoint(tmp_path / "source.pt")

    return save_and_read


def model_of(name: str, nc: int = 2, seed: int = 0, class_width: int | None = None) -> DetectionModel:
    torch.manual_seed(seed)
    return build_model(name, nc=nc, class_width=class_width).eval()


def predict(model: DetectionModel) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(torch.full((1, 3, 64, 64), 0.5))


@pytest.mark.parametrize("name", ["yolov9-t", "gelan-t"])
def test_same_graph_is_taken_whole(name: str, checkpoint_of: Callable[..., Checkpoint]) -> None:
    source, target = model_of(name), model_of(name, seed=1)
    report = transfer(target, checkpoint_of(source))
    assert (report.missing, report.mismatched, report.unused) == ([], [], [])
    expected = source.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in target.state_dict().items())


def test_single_into_dual_loads_the_main_branch_and_says_so(
    checkpoint_of: Callable[..., Checkpoint], caplog: pytest.LogCaptureFixture
) -> None:
    source, target = model_of("gelan-t"), model_of("yolov9-t", seed=1)
    fresh = {key: value.clone() for key, value in target.state_dict().items()}
    with caplog.at_level(logging.INFO, "yolov9"):
        report = transfer(target, checkpoint_of(source))
    assert torch.equal(predict(target), predict(source))
    assert "main branch loaded; the auxiliary branch starts fresh" in caplog.text
    assert report.unused == []
    assert set(report.missing) | set(report.loaded) == set(fresh)
    now = target.state_dict()
    assert all(torch.equal(now[key], fresh[key]) for key in report.missing)
    assert {key.split(".")[1] for key in report.missing} == {"22", "25", "28", "29"}


def test_dual_into_single_takes_the_main_branch(
    checkpoint_of: Callable[..., Checkpoint], caplog: pytest.LogCaptureFixture
) -> None:
    source, target = model_of("yolov9-t"), model_of("gelan-t", seed=1)
    with caplog.at_level(logging.INFO, "yolov9"):
        report = transfer(target, checkpoint_of(source))
    assert torch.equal(predict(target), predict(convert(source)))
    assert (report.missing, report.mismatched) == ([], [])
    assert "the auxiliary branch of the checkpoint is left out" in caplog.text


@pytest.mark.parametrize("size", ["m", "c", "e"])
def test_numbers_of_rows_differ_between_single_and_dual(size: str) -> None:
    """The single graphs of these sizes count their rows differently from the dual ones."""
    with torch.device("meta"):
        single, dual = build_model(f"gelan-{size}", nc=1), build_model(f"yolov9-{size}", nc=1)
    state = {name: torch.ones(()).expand(value.shape) for name, value in single.state_dict().items()}
    checkpoint = Checkpoint(state, single.spec, None, None, "bare")
    report = transfer(dual, checkpoint)
    assert (report.mismatched, report.unused, len(report.loaded)) == ([], [], len(state))


def test_other_number_of_classes_starts_the_class_layers_fresh(
    checkpoint_of: Callable[..., Checkpoint], caplog: pytest.LogCaptureFixture
) -> None:
    source, target = model_of("yolov9-t", nc=2), model_of("yolov9-t", nc=3, seed=1)
    with caplog.at_level(logging.INFO, "yolov9"):
        report = transfer(target, checkpoint_of(source))
    assert report.mismatched == [
        f"model.29.{part}.{level}.2.{kind}"
        for part in ("cv3", "cv5")
        for level in range(3)
        for kind in ("weight", "bias")
    ]
    assert "2 classes there, 3 here; class layers that do not fit start fresh" in caplog.text


def test_narrow_class_branches_are_kept_when_the_model_is_built_for_them(
    checkpoint_of: Callable[..., Checkpoint],
) -> None:
    checkpoint = checkpoint_of(model_of("gelan-t-cls80", nc=80))
    target = build_model("gelan-t", nc=80, class_width=checkpoint.class_width)
    report = transfer(target, checkpoint)
    assert (report.missing, report.mismatched, report.unused) == ([], [], [])


def test_another_model_is_warned_about(
    checkpoint_of: Callable[..., Checkpoint], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "yolov9"):
        report = transfer(model_of("gelan-s"), checkpoint_of(model_of("gelan-t")))
    assert len(report.mismatched) > len(report.loaded)
    assert "most tensors of gelan-t do not fit gelan-s" in caplog.text


def test_rows_of_another_type_are_not_mixed_up(tiny_graph: dict[str, Any]) -> None:
    """Rows 4 and 5 are of other types here, although some of their tensors have the same names."""
    rows = tiny_graph["layers"]
    rows[2:4] = [[-1, 1, "Conv", [32, 3, 1]], [-1, 1, "AConv", [64]]]
    rows[4:9] = [[-1, 1, "ADown", [16]], [-1, 1, "ADown", [16]]]
    rows[-1] = [[3, 4, 5], 1, "DDetect", ["nc"]]
    single = build_model(tiny_graph)
    checkpoint = Checkpoint(single.state_dict(), single.spec, None, None, "bare")
    report = transfer(model_of("yolov9-t", nc=3), checkpoint)
    assert "model.3.cv1.conv.weight" in report.loaded
    assert "model.5.cv1.conv.weight" in report.missing
    assert not any(name.startswith(("model.4.", "model.29.")) for name in report.loaded)


def test_transfer_keeps_the_frozen_bins_frozen(checkpoint_of: Callable[..., Checkpoint]) -> None:
    target = model_of("gelan-t")
    transfer(target, checkpoint_of(model_of("gelan-t", seed=1)))
    assert [name for name, p in target.named_parameters() if not p.requires_grad] == ["model.22.dfl.conv.weight"]
