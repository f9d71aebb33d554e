"""The embedded data set: pictures of drawn objects, generated on first use, the same for the same seed."""

import os
import secrets
import shutil
from pathlib import Path

import cv2
import numpy as np
import yaml

from yolov9.config.environment import Environment
from yolov9.data.embedded_objects import OBJECT_NAMES
from yolov9.data.embedded_scene import draw_scene
from yolov9.errors import ExitCode, UserError
from yolov9.logs import LOG

VERSION = 1
"""Changes whenever the pictures change."""
SEED = 0
PICTURES = {"train": 320, "val": 80}
"""Pictures per split."""
_JPEG_QUALITY = 92
_COMPLETE = "complete"  # marker: written last


def embedded_dataset(environment: Environment) -> Path:
    """Returns the data.yaml of the embedded data set, generating it in the cache or temporary folder if need be.

    Raises:
        UserError: neither folder is writable.
    """
    name = f"embedded-v{VERSION}-seed{SEED}"
    parents = [folder / "datasets" for folder in (environment.cache_dir,) if folder]
    parents.append(environment.temporary_dir / f"yolov9-{os.getuid()}")
    for parent in parents:
        if (parent / name / _COMPLETE).is_file():
            return parent / name / "data.yaml"
    problems = []
    for parent in parents:
        try:
            return generate_embedded(parent / name)
        except OSError as error:
            problems.append(f"{parent}: {error.strerror}")
    raise UserError(
        found="nowhere to put the embedded data set: " + "; ".join(problems),
        needed="a writable folder with 10 MB of room",
        remedy="set YOLOV9_CACHE_DIR or TMPDIR to such a folder, or give a data set of your own with --data",
        exit_code=ExitCode.OUTPUT_NOT_WRITABLE,
    )


def generate_embedded(folder: Path, seed: int = SEED, pictures: dict[str, int] | None = None) -> Path:
    """Generates the data set into a folder, complete or not at all, and returns its data.yaml.

    Args:
        folder: where it is to be; replaced unless it is complete.
        seed: the same seed gives the same pictures.
        pictures: pictures per split; by default `PICTURES`.

    Raises:
        OSError: the folder cannot be written.
    """
    if (folder / _COMPLETE).is_file():
        return folder / "data.yaml"
    LOG.info("drawing the embedded data set into %s", folder)
    temporary = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}.tmp")
    try:
        for number, (split, count) in enumerate((pictures or PICTURES).items()):
            _draw_split(temporary, split, count, (VERSION, seed, number))
        _write_yaml(temporary)
        (temporary / _COMPLETE).touch()
        if folder.is_dir():
            shutil.rmtree(folder)  # left over from an attempt that was interrupted
        try:
            temporary.rename(folder)
        except OSError:
            if not (folder / _COMPLETE).is_file():  # else another process was faster
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder / "data.yaml"


def _draw_split(folder: Path, split: str, count: int, seed: tuple[int, int, int]) -> None:
    images, labels = folder / "images" / split, folder / "labels" / split
    images.mkdir(parents=True)
    labels.mkdir(parents=True)
    for number in range(count):
        scene = draw_scene(np.random.default_rng((*seed, number)))
        _, data = cv2.imencode(".jpg", scene.image, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
        (images / f"{number:04d}.jpg").write_bytes(data.tobytes())
        rows = [f"{int(row[0])} " + " ".join(f"{value:.6f}" for value in row[1:]) for row in scene.labels]
        (labels / f"{number:04d}.txt").write_text("".join(f"{row}\n" for row in rows), encoding="ascii")


def _write_yaml(folder: Path) -> None:
    content = {"path": ".", "train": "images/train", "val": "images/val", "names": dict(enumerate(OBJECT_NAMES))}
    (folder / "data.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
