"""Weights files: those that load, and what is said about those that do not."""

import logging
import shutil
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from yolov9.errors import ExitCode, UserError
from yolov9.model import DetectionModel, build_model, fuse, load_weights, read_checkpoint


@pytest.fixture
def model(tiny_graph: dict[str, Any]) -> DetectionModel:
    torch.manual_seed(3)
    model = build_model(tiny_graph, nc=2)
    model.names = ["cat", "dog"]
    return model.eval()


@pytest.fixture(scope="module")
def known() -> dict[str, torch.Tensor]:
    """State dict of a known graph with two classes, as it stands without its graph."""
    return build_model("gelan-t", nc=2).state_dict()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "weights.pt"


def own_content(model: DetectionModel, **changes: Any) -> dict[str, Any]:
    content = {
        "format": "yolov9-checkpoint-1",
        "graph": model.graph,
        "graph_name": model.graph_name,
        "names": model.names,
        "nc": model.nc,
        "model": model.state_dict(),
        "ema": None,
        "epoch": 4,
        "training": {"optimizer": {"state": {0: {"step": torch.tensor(3.0)}}}, "rng": (1, [2], None, torch.zeros(3))},
    }
    return {**content, **changes}


def equal(state: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return list(state) == list(other) and all(torch.equal(value, other[name]) for name, value in state.items())


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_own_checkpoint(model: DetectionModel, file: Path, zipped: bool) -> None:
    torch.save(own_content(model), file, _use_new_zipfile_serialization=zipped)
    checkpoint = read_checkpoint(file)
    assert equal(checkpoint.state_dict, model.state_dict())
    assert (checkpoint.form, checkpoint.kind, checkpoint.epoch) == ("own", "single", 4)
    assert (checkpoint.names, checkpoint.nc, checkpoint.graph) == (["cat", "dog"], 2, model.graph)


def test_running_average_is_preferred(model: DetectionModel, file: Path) -> None:
    average = {name: value + 1 for name, value in model.state_dict().items()}
    torch.save(own_content(model, ema=average), file)
    assert equal(read_checkpoint(file).state_dict, average)


def test_loaded_model_is_ready(model: DetectionModel, file: Path) -> None:
    torch.save(own_content(model), file)
    loaded = load_weights(file)
    x = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))
    assert (loaded.names, loaded.training) == (["cat", "dog"], False)
    assert [n for n, p in loaded.named_parameters() if not p.requires_grad] == ["model.9.dfl.conv.weight"]


def test_own_checkpoint_of_a_user_graph(tiny_graph: dict[str, Any], file: Path) -> None:
    mine = build_model({**tiny_graph, "name": "mine"}, nc=5, class_width=24)
    torch.save(own_content(mine, names=list("abcde")), file)
    loaded = load_weights(file)
    assert (loaded.graph_name, loaded.nc, loaded.class_width) == ("mine", 5, 24)
    assert equal(loaded.state_dict(), mine.state_dict())


def test_newer_format_is_named(model: DetectionModel, file: Path) -> None:
    torch.save(own_content(model, format="yolov9-checkpoint-9"), file)
    with pytest.raises(UserError, match="yolov9-checkpoint-9, which only a newer version reads"):
        read_checkpoint(file)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        dict,
        lambda state: {"state_dict": state},
        lambda state: {"model": OrderedDict(state), "epoch": -1},
        lambda state: {f"module.{name}": value for name, value in state.items()},
    ],
    ids=["OrderedDict", "dict", "state_dict", "model", "module."],
)
def test_bare_state_dict_that_fits_a_known_graph(
    known: dict[str, torch.Tensor], file: Path, wrap: Callable[[Any], Any], zipped: bool
) -> None:
    torch.save(wrap(known), file, _use_new_zipfile_serialization=zipped)
    checkpoint = read_checkpoint(file)
    assert equal(checkpoint.state_dict, known)
    assert (checkpoint.spec.name, checkpoint.nc, checkpoint.names) == ("gelan-t", 2, None)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_precision_becomes_float32(model: DetectionModel, file: Path, dtype: torch.dtype) -> None:
    state = {n: v.to(dtype) if v.is_floating_point() else v for n, v in model.state_dict().items()}
    torch.save(own_content(model, ema=state), file)
    loaded = read_checkpoint(file).state_dict
    assert equal(loaded, {n: v.float() if v.is_floating_point() else v for n, v in state.items()})
    assert {v.dtype for v in loaded.values()} == {torch.float32, torch.int64}


def test_channels_last_and_shared_blocks_are_read(model: DetectionModel, file: Path) -> None:
    state = dict(model.state_dict())
    flat = torch.cat([v.flatten() for v in state.values() if v.is_floating_point()])
    place = 0
    for name, value in state.items():
        if value.is_floating_point():
            state[name] = flat[place : place + value.numel()].view(value.shape)
            place += value.numel()
    first = next(iter(state))
    state[first] = state[first].to(memory_format=torch.channels_last)
    torch.save(own_content(model, ema=state), file)
    assert equal(read_checkpoint(file).state_dict, model.state_dict())


@pytest.mark.parametrize("name", ["gelan-t-cls80", "yolov9-t-cls80"])
def test_width_of_the_class_branches_comes_from_the_tensors(name: str, file: Path) -> None:
    torch.save(build_model(name).state_dict(), file)
    checkpoint = read_checkpoint(file)
    assert (checkpoint.class_width, checkpoint.nc) == (80, 80)
    assert load_weights(file).class_width == 80


def test_known_width_leaves_the_rule_in_charge(known: dict[str, torch.Tensor], file: Path) -> None:
    torch.save(known, file)
    assert read_checkpoint(file).class_width is None


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "b"], ["a", "b"]),
        (("a", "b"), ["a", "b"]),
        ({0: "a", 1: "b"}, ["a", "b"]),
        ({1: "b", 0: "a"}, ["a", "b"]),
        ({"0": "a", "1": "b"}, ["a", "b"]),
        ([0, 1], ["0", "1"]),
    ],
)
def test_class_names_as_list_or_dictionary(model: DetectionModel, file: Path, names: Any, expected: list[str]) -> None:
    torch.save(own_content(model, names=names), file)
    assert read_checkpoint(file).names == expected


@pytest.mark.parametrize("names", [["a"], {0: "a", 5: "b"}, "ab", [["a"], ["b"]], {}])
def test_class_names_that_do_not_fit_are_left_out_with_a_warning(
    model: DetectionModel, file: Path, names: Any, caplog: pytest.LogCaptureFixture
) -> None:
    torch.save(own_content(model, names=names), file)
    with caplog.at_level(logging.WARNING, "yolov9"):
        assert read_checkpoint(file).names is None
    assert "class names do not fit" in caplog.text


def test_folded_weights_are_named_as_such(model: DetectionModel, file: Path) -> None:
    torch.save(fuse(model).state_dict(), file)
    with pytest.raises(UserError, match="folded for inference"):
        read_checkpoint(file)


def test_weights_of_another_network(file: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), file)
    with pytest.raises(UserError, match="no detection head of YOLOv9"):
        read_checkpoint(file)


def test_weights_that_almost_fit_say_what_differs(known: dict[str, torch.Tensor], file: Path) -> None:
    state = dict(known)
    del state["model.3.cv1.bn.weight"]
    torch.save(state, file)
    with pytest.raises(UserError, match=r"model\.3\.cv1\.bn\.weight is missing") as caught:
        read_checkpoint(file)
    assert caught.value.exit_code is ExitCode.BAD_DATA


def test_head_without_classes(known: dict[str, torch.Tensor], file: Path) -> None:
    state = dict(known)
    state["model.22.cv3.0.2.weight"] = torch.zeros(0, 64, 1, 1)
    torch.save(state, file)
    with pytest.raises(UserError, match="0 classes"):
        read_checkpoint(file)


def test_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist") as caught:
        load_weights(tmp_path / "none.pt")
    assert caught.value.exit_code is ExitCode.USAGE


def test_folder_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder"):
        load_weights(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "pointer of git LFS"),
        (b"\n<!DOCTYPE html><html><body>Not found</body></html>", "a web page"),
        (b"<?xml version='1.0'?><Error><Code>NoSuchKey</Code></Error>", "a web page"),
        (b"\x08\x08\x12\x07pytorch\x1a\x051.0.0" + b"\0" * 50, "an ONNX file"),
        (b'\x40\x00\x00\x00\x00\x00\x00\x00{"a":1}' + b" " * 60, "a safetensors file"),
        (b"just some text\n", "a text file"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "not a checkpoint"),
        (b"\x80\x02K\x05.", "not one of torch.save"),
        (b"\x80\x02", "ends too early|damaged|exhausted"),
    ],
)
def test_other_kinds_of_files_are_named(content: bytes, words: str, file: Path) -> None:
    file.write_bytes(content)
    with pytest.raises(UserError, match=words) as caught:
        load_weights(file)
    assert caught.value.exit_code is ExitCode.BAD_DATA


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.99, 0.9999])
def test_cut_file_is_called_incomplete(model: DetectionModel, file: Path, share: float, zipped: bool) -> None:
    torch.save(own_content(model), file, _use_new_zipfile_serialization=zipped)
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(UserError, match="is not a whole checkpoint") as caught:
        load_weights(file)
    assert caught.value.exit_code is ExitCode.BAD_DATA


def test_changed_byte_in_the_numbers_is_noticed(model: DetectionModel, file: Path) -> None:
    torch.save(own_content(model), file)
    with zipfile.ZipFile(file) as archive:
        place = archive.getinfo("weights/data/0").header_offset
    content = bytearray(file.read_bytes())
    content[place + 400] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(UserError, match="CRC"):
        load_weights(file)


def test_torchscript_file(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("data.pkl", "constants.pkl", "code/__torch__.py"):
            archive.writestr(f"weights/{name}", b"\x80\x02K\x05.")
    with pytest.raises(UserError, match="TorchScript"):
        load_weights(file)


def test_archive_of_something_else(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(UserError, match=r"no data\.pkl"):
        load_weights(file)


def test_numbers_with_the_high_byte_first(model: DetectionModel, file: Path, tmp_path: Path) -> None:
    torch.save(model.state_dict(), file)
    swapped = tmp_path / "big.pt"
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(swapped, "w") as target:
        for name in source.namelist():
            target.writestr(name, b"big" if name.endswith("byteorder") else source.read(name))
    with pytest.raises(UserError, match="high byte first"):
        load_weights(swapped)


def test_missing_block_of_numbers(model: DetectionModel, file: Path, tmp_path: Path) -> None:
    torch.save(own_content(model), file)
    less = tmp_path / "less.pt"
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(less, "w") as target:
        for name in source.namelist():
            if not name.endswith("data/7"):
                target.writestr(name, source.read(name))
    with pytest.raises(UserError, match="data/7 is missing"):
        load_weights(less)


@pytest.mark.parametrize("value", [5, [torch.zeros(2)], {"epoch": 3}, {"model": {}}, "text", None])
def test_pickle_without_weights(value: Any, file: Path) -> None:
    torch.save(value, file)
    with pytest.raises(UserError, match="not a checkpoint of YOLOv9"):
        read_checkpoint(file)


def test_unreadable_file(model: DetectionModel, file: Path) -> None:
    torch.save(model.state_dict(), file)
    file.chmod(0)
    if file.stat().st_uid == 0 or shutil.which("true") is None:
        pytest.skip("root may read every file")
    with pytest.raises(UserError, match="cannot be opened"):
        load_weights(file)
