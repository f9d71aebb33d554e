"""Checkpoints, labels and pictures that are damaged or hostile: refused or repaired, never executed."""

import io
import json
import os
import pickle
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from yolov9.__main__ import main
from yolov9.engine.checkpoint import ModelFacts as Facts
from yolov9.engine.checkpoint import Progress, training_content
from yolov9.model import build_model

Mutate = Callable[[random.Random, bytes], bytes]
GRAPH = Path(__file__).parents[1] / "unit" / "engine" / "tiny-graph.yaml"


class Payload:
    """What an attacker's pickle asks for; each one leaves a file `pwned` when it is run."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._reduced = function, arguments

    def __reduce__(self) -> Any:
        return self._reduced


PAYLOADS = {
    "os.system": Payload(os.system, "touch pwned"),
    "eval": Payload(eval, "open('pwned', 'w')"),
    "exec": Payload(exec, "open('pwned', 'w')"),
    "open": Payload(open, "pwned", "w"),
    "nested": {"model": {"a": [Payload(os.system, "touch pwned")]}},
    "key": {Payload(os.system, "touch pwned"): 1},
    "getattr": Payload(getattr, Payload(__import__, "os"), "system"),
    "torch.load": Payload(torch.load, "pwned"),
}


@pytest.fixture(scope="module")
def good_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A last.pt as the trainer writes it, small."""
    torch.manual_seed(0)
    model = build_model(str(GRAPH), nc=2)
    facts = Facts(model.graph, model.graph_name, ["a", "b"])
    state = model.state_dict()
    numbers = dict.fromkeys(("ema_updates", "batches_per_epoch", "batch", "world", "pictures_per_step"), 1)
    training = {**numbers, "optimizer": {"kind": "SGD", "state": {}}, "gradients": {}, "scaler": {}, "recipe": {}}
    training |= {"settings": {"epochs": 3, "patience": 100}, "rng": {"cpu": torch.get_rng_state()}}
    file = io.BytesIO()
    torch.save(training_content(facts, Progress(epoch=1), state, state, training), file)
    return file.getvalue()


def with_pickle(checkpoint: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The same archive, checksums and all, around another pickle."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(checkpoint)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, change(data) if name.endswith("data.pkl") else data)
    return out.getvalue()


def damaged(mutate: Mutate, good: bytes, count: int) -> Iterator[bytes]:
    rng = random.Random(3)
    for number in range(count):
        if number % 3:
            yield with_pickle(good, lambda data: mutate(rng, data))
        else:
            yield mutate(rng, good)


def plan(folder: Path, command: str, **settings: Any) -> list[str]:
    values = {"device": "cpu", "workers": 0, "imgsz": 64, **settings}
    file = folder / "plan.json"
    file.write_text(json.dumps({"command": command, "settings": values, "run_dir": str(folder / "run")}))
    return [str(file)]


@pytest.fixture
def picture(in_folder: Path) -> str:
    file = in_folder / "a.png"
    cv2.imwrite(str(file), np.full((64, 64, 3), 90, np.uint8))
    return str(file)


# Python itself warns about "\\d" in a damaged pickle.
@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")
def test_weights_of_detect(endings: Any, in_folder: Path, picture: str, good_checkpoint: bytes, mutate: Mutate) -> None:
    file = in_folder / "weights.pt"
    words = plan(in_folder, "detect", weights=str(file), source=picture, nosave=True)
    for number, content in enumerate(damaged(mutate, good_checkpoint, 90)):
        file.write_bytes(content)
        endings.run(("weights", number), lambda: main(words))
    assert not (in_folder / "pwned").exists()


def test_checkpoints_of_resume(endings: Any, in_folder: Path, good_checkpoint: bytes, mutate: Mutate) -> None:
    file = in_folder / "run" / "weights" / "last.pt"
    file.parent.mkdir(parents=True)
    words = plan(in_folder, "train", resume=str(file), data="nowhere.yaml")
    for number, content in enumerate(damaged(mutate, good_checkpoint, 90)):
        file.write_bytes(content)
        endings.run(("resume", number), lambda: main(words))
    assert not (in_folder / "pwned").exists()


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("payload", PAYLOADS)
def test_p33_no_payload_runs(
    endings: Any, in_folder: Path, picture: str, good_checkpoint: bytes, payload: str, protocol: int
) -> None:
    evil = pickle.dumps(PAYLOADS[payload], protocol=protocol)
    forms = {
        "archive": with_pickle(good_checkpoint, lambda data: evil),
        "bare": evil,
        "legacy": pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({}, 2) + evil,
    }
    last = in_folder / "run" / "weights" / "last.pt"
    last.parent.mkdir(parents=True)
    for form, content in forms.items():
        last.write_bytes(content)
        detect = plan(in_folder, "detect", weights=str(last), source=picture, nosave=True)
        endings.run((form, "detect"), lambda words=detect: main(words))
        resume = plan(in_folder, "train", resume=str(last))
        endings.run((form, "resume"), lambda words=resume: main(words))
    assert not (in_folder / "pwned").exists()


def draw_set(folder: Path) -> Path:
    for split in ("train", "val"):
        for kind in ("images", "labels"):
            (folder / kind / split).mkdir(parents=True)
    (folder / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [a, b]\n")
    return folder / "data.yaml"


@pytest.fixture
def validate(in_folder: Path, good_checkpoint: bytes) -> Callable[[], int]:
    """Runs `val` on a data set of a few pictures in the working folder."""
    (in_folder / "weights.pt").write_bytes(good_checkpoint)
    data = draw_set(in_folder / "set")
    words = plan(in_folder, "val", weights=str(in_folder / "weights.pt"), data=str(data), noplots=True)
    return lambda: main(words)


def test_label_files(endings: Any, in_folder: Path, mutate: Mutate, validate: Callable[[], int]) -> None:
    rng = random.Random(5)
    good = b"0 0.5 0.5 0.25 0.25\n1 0.1 0.1 0.2 0.1 0.2 0.2\n1 0.75 0.75 0.5 0.5\n"
    for name in ("x", "y"):
        cv2.imwrite(str(in_folder / "set/images/val" / f"{name}.png"), np.full((64, 64, 3), 90, np.uint8))
    (in_folder / "set/labels/val/y.txt").write_bytes(good)
    for _ in range(90):
        content = mutate(rng, good)
        (in_folder / "set/labels/val/x.txt").write_bytes(content)
        endings.run(content, validate)
    assert endings.count == 90


def encoded(ending: str) -> bytes:
    picture = np.random.default_rng(1).integers(0, 255, (48, 64, 3), dtype=np.uint8)
    return cv2.imencode(ending, picture)[1].tobytes()


@pytest.mark.parametrize("ending", [".png", ".jpg", ".bmp", ".tiff", ".webp"])
def test_pictures(endings: Any, in_folder: Path, mutate: Mutate, validate: Callable[[], int], ending: str) -> None:
    rng = random.Random(ending)
    good = encoded(ending)
    (in_folder / "set/images/val/whole.png").write_bytes(encoded(".png"))
    for name in ("whole", "x"):
        (in_folder / f"set/labels/val/{name}.txt").write_bytes(b"0 0.5 0.5 0.25 0.25\n")
    for number in range(24):
        (in_folder / f"set/images/val/x{ending}").write_bytes(mutate(rng, good))
        endings.run((ending, number), validate)
    assert endings.count == 24


def png_that_claims(width: int, height: int) -> bytes:
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(("width", "height"), [(2**31 - 1, 2**31 - 1), (100_000, 100_000), (0, 5), (2**31 - 1, 1)])
def test_a_picture_bomb_is_refused_by_its_header(
    endings: Any, in_folder: Path, validate: Callable[[], int], width: int, height: int
) -> None:
    (in_folder / "set/images/val/whole.png").write_bytes(encoded(".png"))
    (in_folder / "set/images/val/bomb.png").write_bytes(png_that_claims(width, height))
    for name in ("whole", "bomb"):
        (in_folder / f"set/labels/val/{name}.txt").write_bytes(b"0 0.5 0.5 0.25 0.25\n")
    assert "1 used, 1 left out" in endings.run((width, height), validate)
