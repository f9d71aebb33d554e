"""Detections in COCO's results format, and COCO's own scores from a COCO library when one is installed.

A results file is a list of objects with `image_id`, `category_id`, `bbox` (left, top, width, height in pixels of the
original picture) and `score`; see https://cocodataset.org/#format-results.
"""

import contextlib
import importlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from yolov9.errors import DataError
from yolov9.logs import LOG

LIBRARIES = (("faster_coco_eval", "COCO", "COCOeval_faster"), ("pycocotools", "coco.COCO", "cocoeval.COCOeval"))
"""Libraries in order of preference: package, class of the annotations, class of the evaluation."""

INSTALL_HINT = "pip install faster-coco-eval (or pycocotools)"

ENTRY_FIELDS = {
    "images": ("id", "file_name"),
    "annotations": ("id", "image_id", "category_id", "bbox"),
    "categories": ("id", "name"),
}
"""Lists of an annotation file, and what each of their entries has to have."""
BBOX_DECIMALS = 3
SCORE_DECIMALS = 5


@dataclass(frozen=True)
class CocoScores:
    """COCO's twelve figures for boxes, in COCO's order; -1 where a size group holds no object."""

    library: str
    """Package that computed them."""
    ap: float
    ap50: float
    ap75: float
    ap_small: float
    ap_medium: float
    ap_large: float
    ar_1: float
    ar_10: float
    ar_100: float
    ar_small: float
    ar_medium: float
    ar_large: float

    def lines(self) -> list[str]:
        """The figures as two lines of text."""
        return [
            f"COCO AP {self.ap:.4f}, AP50 {self.ap50:.4f}, AP75 {self.ap75:.4f}, "
            f"small {self.ap_small:.4f}, medium {self.ap_medium:.4f}, large {self.ap_large:.4f} ({self.library})",
            f"COCO AR, 1 box {self.ar_1:.4f}, 10 boxes {self.ar_10:.4f}, 100 boxes {self.ar_100:.4f}, "
            f"small {self.ar_small:.4f}, medium {self.ar_medium:.4f}, large {self.ar_large:.4f}",
        ]


class CocoAnnotations:
    """A COCO annotation file.

    Args:
        path: JSON file with `images`, `annotations` and `categories`.

    Raises:
        DataError: the file is missing, not JSON, or lacks one of the three lists.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content = _read(path)
        self._image_ids = {PurePath(str(image["file_name"])).name: image["id"] for image in self.content["images"]}

    def image_id(self, picture: str) -> int | str:
        """Returns the id that the file gives a picture, by file name; else as `image_id`."""
        found = self._image_ids.get(PurePath(picture).name)
        return image_id(picture) if found is None else found

    def category_ids(self, names: Sequence[str]) -> list[int]:
        """Returns the category id of every class number.

        Names decide when the file has all of them; else the order of the ids does when there are equally many (so 80
        COCO classes get the ids 1..90 of the published annotation files).

        Raises:
            DataError: neither fits.
        """
        categories = sorted(self.content["categories"], key=lambda category: category["id"])
        by_name = {str(category["name"]).casefold(): int(category["id"]) for category in categories}
        if all(name.casefold() in by_name for name in names):
            return [by_name[name.casefold()] for name in names]
        if len(categories) == len(names):
            LOG.info("%s: class names differ, so categories are matched by their order", self.path)
            return [int(category["id"]) for category in categories]
        unknown = [name for name in names if name.casefold() not in by_name]
        raise DataError(
            f"{self.path} has {len(categories)} categories, none of them named {unknown[0]!r}",
            f"the {len(names)} class names of the weights, or as many categories",
            "--annotations FILE of the same data set",
        )


def image_id(picture: str) -> int | str:
    """Returns a picture's file name without its suffix, as a number when it is one (000000000139.jpg: 139)."""
    stem = PurePath(picture).stem
    return int(stem) if stem.isascii() and stem.isdecimal() else stem


def result_rows(
    identity: int | str, detections: NDArray[np.floating], category_ids: Sequence[int]
) -> list[dict[str, Any]]:
    """Turns the detections of one picture into results.

    Args:
        identity: image id.
        detections: (n, 6) x1, y1, x2, y2, score, class in pixels of the original picture.
        category_ids: category id of every class number.
    """
    return [
        {
            "image_id": identity,
            "category_id": category_ids[int(row[5])],
            "bbox": [
                round(float(value), BBOX_DECIMALS) for value in (row[0], row[1], row[2] - row[0], row[3] - row[1])
            ],
            "score": round(float(row[4]), SCORE_DECIMALS),
        }
        for row in detections
    ]


def coco_scores(
    annotations: CocoAnnotations, results: Sequence[dict[str, Any]], image_ids: Sequence[int | str]
) -> CocoScores | None:
    """Scores results with the COCO library that is installed.

    Args:
        annotations: the truth.
        results: rows of `result_rows`, of all pictures.
        image_ids: pictures that were looked at; others of the annotation file do not count.

    Returns:
        The scores; None (and a line that says what to install) without a library.

    Raises:
        DataError: the annotation file knows none of the pictures.
    """
    known = {image["id"] for image in annotations.content["images"]}
    wanted = sorted(known.intersection(image_ids), key=str)
    if not wanted:
        raise DataError(
            f"{annotations.path} knows none of the {len(image_ids)} pictures that were validated",
            "the annotation file of this split, with the same file names",
            "--annotations FILE of the split that --task names",
        )
    if len(wanted) < len(set(image_ids)):
        LOG.warning(
            "%s knows %d of %d pictures; the others do not count", annotations.path, len(wanted), len(image_ids)
        )
    library = _find_library()
    if library is None:
        LOG.warning("no COCO scores: %s", INSTALL_HINT)
        return None
    inside = set(wanted)
    return _evaluate(library, annotations.content, [row for row in results if row["image_id"] in inside], wanted)


def _find_library() -> tuple[str, Any, Any] | None:
    for package, truth, evaluation in LIBRARIES:
        try:
            return package, _attribute(package, truth), _attribute(package, evaluation)
        except ImportError:
            continue
    return None


def _attribute(package: str, dotted: str) -> Any:
    *modules, name = dotted.split(".")
    module: ModuleType = importlib.import_module(".".join([package, *modules]))
    return getattr(module, name)


def _evaluate(
    library: tuple[str, Any, Any], content: dict[str, Any], results: list[dict[str, Any]], wanted: list[Any]
) -> CocoScores:
    package, truth_class, evaluation_class = library
    if not results:
        return CocoScores(package, *[0.0] * 12)
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints its progress
        truth = truth_class()
        truth.dataset = content
        truth.createIndex()
        evaluation = evaluation_class(truth, truth.loadRes(results), "bbox")
        evaluation.params.imgIds = wanted
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return CocoScores(package, *(float(value) for value in evaluation.stats[:12]))


def _read(path: Path) -> dict[str, Any]:
    remedy = "--annotations FILE, as instances_val2017.json of COCO"
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}", "a COCO annotation file that can be read", remedy) from error
    except ValueError as error:
        raise DataError(f"{path} is not JSON: {error}", "a COCO annotation file", remedy) from error
    keys = tuple(ENTRY_FIELDS)
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in keys):
        raise DataError(f"{path} lacks one of the lists {', '.join(keys)}", "a COCO annotation file", remedy)
    for key, fields in ENTRY_FIELDS.items():
        for number, entry in enumerate(content[key]):
            lacking = [name for name in fields if not isinstance(entry, dict) or name not in entry]
            if lacking:
                raise DataError(f"{path}: {key}[{number}] has no {lacking[0]!r}", "a COCO annotation file", remedy)
    content.setdefault("info", {})  # newer pycocotools insist on it
    return content
