"""Words, data.yaml, recipes, graphs and option files that nobody meant: an answer, never a traceback or a hang."""

import random
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from entrypoint.cli import main
from yolov9.config.settings import DetectSettings, TrainSettings, ValSettings

Mutate = Callable[[random.Random, bytes], bytes]
VALUES = (
    *("", "0", "-1", "1.5", "nan", "inf", "1e999", "99999999999999999999", "true", "no", "0x10", "٣", "1_000", "1,2,3"),
    *("../../etc/passwd", "/dev/zero", "/dev/null", "/proc/self/mem", "/", ".", "a\nb", "a\x1b[31mb", "\udc80", "%s%n"),
    *(
        "$(touch pwned)",
        "`touch pwned`",
        "; touch pwned",
        "--",
        "-",
        "[1, 2",
        "{a: 1}",
        "x" * 5000,
        "cuda:7",
        "0,0",
        "GPU-1",
    ),
)
DATA = b"path: .\ntrain: images/train\nval: images/val\nnc: 2\nnames:\n  0: cat\n  1: dog\n"
RECIPE = (
    b"lr0: 0.01\nlrf: 0.01\nmomentum: 0.937\nwarmup_epochs: 3.0\nbox: 7.5\nmosaic: 1.0\nhsv_h: 0.015\nfl_gamma: 0.0\n"
)
OPTIONS = b"epochs: 7\nbatch: 8\nimg: 64\nfreeze: [1, 2]\nrect: true\noptimizer: SGD\nname: run\n"


def flags_of(settings: Any) -> list[str]:
    return [flag for field in fields(settings) for flag in field.metadata.get("flags", ())]


@pytest.fixture
def data_file(in_folder: Path) -> Path:
    for split in ("train", "val"):
        (in_folder / "set" / "images" / split).mkdir(parents=True)
        (in_folder / "set" / "labels" / split).mkdir(parents=True)
        cv2.imwrite(str(in_folder / "set" / "images" / split / "0.png"), np.full((32, 32, 3), 90, np.uint8))
        (in_folder / "set" / "labels" / split / "0.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    file = in_folder / "set" / "data.yaml"
    file.write_bytes(DATA)
    return file


@pytest.mark.parametrize(
    ("command", "settings"), [("train", TrainSettings), ("val", ValSettings), ("detect", DetectSettings)]
)
def test_options(endings: Any, in_folder: Path, command: str, settings: Any) -> None:
    rng = random.Random(command)
    flags = flags_of(settings)
    for number in range(70):
        words = ["plan", command]
        for _ in range(rng.choice((1, 1, 2, 3))):
            words += [rng.choice(flags), *(rng.choice(VALUES) for _ in range(rng.choice((0, 1, 1, 1, 2))))]
        endings.run((number, words), lambda words=words: main(words))
    assert not (in_folder / "pwned").exists()


def test_words_that_are_no_options(endings: Any, in_folder: Path) -> None:
    rng = random.Random(1)
    for _ in range(30):
        words = [rng.choice(("plan", "check", "train", "help")), *(rng.choice(VALUES) for _ in range(rng.randrange(3)))]
        words += ["--no-such-option"]
        endings.run(words, lambda words=words: main(words))


@pytest.mark.parametrize(
    ("flag", "good"), [("--data", DATA), ("--hyp", RECIPE), ("--config", OPTIONS), ("--cfg", None)]
)
def test_files(endings: Any, in_folder: Path, data_file: Path, mutate: Mutate, flag: str, good: bytes | None) -> None:
    import yolov9

    graph = Path(yolov9.__file__).parent / "config" / "graphs" / "gelan-t.yaml"
    rng = random.Random(flag)
    file = data_file if flag == "--data" else in_folder / "file.yaml"
    for number in range(60):
        content = mutate(rng, good or graph.read_bytes())
        file.write_bytes(content)
        words = ["plan", "train", "--device", "cpu", flag, str(file)]
        endings.run((number, content), lambda words=words: main(words))
    assert not (in_folder / "pwned").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"a: &a [x]\n"
        + b"".join(b"%c: &%c [%s]\n" % (c + 1, c + 1, b", ".join([b"*%c" % c] * 9)) for c in range(97, 110)),
        b"names: !!python/object/apply:os.system ['touch pwned']\ntrain: x\nval: x\n",
        b"[" * 100_000,
        b"train: " + b"x/" * 100_000 + b"\nval: x\nnames: [a]\n",
        b"nc: 999999999999\ntrain: images/train\nval: images/val\n",
        b"names: {99999999999: a}\ntrain: images/train\nval: images/val\n",
        b"train: images/train\nval: images/val\nnames: [a]\ndownload: |\n  import os\n  os.system('touch pwned')\n",
        b"\xff\xfe\x00",
        b"",
    ],
    ids=["bomb", "python", "deep", "long", "many", "far", "download", "bytes", "empty"],
)
@pytest.mark.parametrize("flag", ["--data", "--hyp", "--config", "--cfg"])
def test_yaml_bombs(endings: Any, in_folder: Path, flag: str, content: bytes) -> None:
    (in_folder / "file.yaml").write_bytes(content)
    endings.run(flag, lambda: main(["plan", "train", "--device", "cpu", flag, str(in_folder / "file.yaml")]))
    assert not (in_folder / "pwned").exists()
