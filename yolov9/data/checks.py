"""Reasons not to start a training with a data set, found before the first batch."""

from collections import Counter
from pathlib import Path

import numpy as np

from yolov9.data.dataset_config import DatasetConfig
from yolov9.data.label_search import find_label_elsewhere
from yolov9.data.listing import IMAGE_SUFFIXES, label_path_of
from yolov9.data.scan import NO_FILE, ScannedPicture
from yolov9.errors import DataError

SHOWN_FILES = 5
"""Files named in an error."""
MOST = 0.5
"""A larger share of refused label files than this stops the run."""


def check_pictures(scanned: list[ScannedPicture], sources: tuple[Path, ...], split: str) -> None:
    """Stops when a split has no picture, or none that can be used."""
    where = ", ".join(str(source) for source in sources)
    if not scanned:
        raise DataError(
            found=f"no pictures for {split!r} in {where}",
            needed=f"files with one of the endings {' '.join(sorted(IMAGE_SUFFIXES))}",
            remedy=f"put pictures there, or correct {split!r} in the data.yaml",
        )
    if not any(picture.facts.width for picture in scanned):
        first = scanned[0]
        if all(picture.facts.stamp == NO_FILE for picture in scanned):
            raise DataError(
                found=f"none of the {len(scanned)} files that {where} names is there; the first one: {first.path}",
                needed="paths relative to the list or to the data.yaml, or absolute ones of this machine or container",
                remedy=f"correct the paths in {where}",
            )
        raise DataError(
            found=f"none of the {len(scanned)} pictures for {split!r} in {where} can be used; "
            f"{first.path}: {first.facts.note}",
            needed="pictures that can be read",
            remedy="copy the pictures again",
        )


def check_label_files(scanned: list[ScannedPicture], split: str, *, allow: bool) -> None:
    """Stops when most label files are refused, unless `allow`."""
    read = [picture for picture in scanned if picture.label_file]
    refused = [picture for picture in read if picture.refused]
    if allow or len(refused) <= MOST * len(read):
        return
    reasons = Counter(picture.refused for picture in refused).most_common()
    listed = "; ".join(f"{reason}: {count} files" for reason, count in reasons)
    examples = [str(problem) for picture in refused[:SHOWN_FILES] for problem in picture.problems]
    raise DataError(
        found=f"{len(refused)} of {len(read)} label files for {split!r} cannot be used ({listed}): "
        + "; ".join(examples),
        needed='rows "class centre-x centre-y width height", numbers separated by spaces, coordinates 0 … 1',
        remedy="export the labels again in YOLO format, or add --allow-bad-labels to train on the rest",
    )


def check_any_label(used: list[ScannedPicture], sources: tuple[Path, ...], split: str) -> None:
    """Stops when no picture has a label."""
    if any(len(picture.labels) for picture in used):
        return
    looked_for = label_path_of(used[0].path) if used else ", ".join(map(str, sources))
    is_empty = bool(used) and used[0].label_file
    elsewhere = find_label_elsewhere(used[0].path) if used and not is_empty else None
    state = "is empty" if is_empty else f"is not there, but {elsewhere} is" if elsewhere else "is not there"
    raise DataError(
        found=f"no label at all for the {len(used)} pictures of {split!r}; for the first one {looked_for} {state}",
        needed="a text file per picture with rows \"class centre-x centre-y width height\", in a folder 'labels' "
        "beside the folder 'images', or beside the picture where its path has no folder 'images'",
        remedy="put the label files there (images/a/x.jpg -> labels/a/x.txt)",
    )


def check_enough(used: list[ScannedPicture], enough: list[ScannedPicture], split: str, min_items: int) -> None:
    """Stops when --min-items leaves no picture."""
    if used and not enough:
        most = max(len(picture.labels) for picture in used)
        raise DataError(
            found=f"--min-items {min_items} leaves none of the {len(used)} pictures of {split!r}",
            needed=f"at most {most}, the objects of the picture that has most",
            remedy=f"--min-items {most} or less",
        )


def check_class_numbers(used: list[ScannedPicture], config: DatasetConfig) -> None:
    """Stops when a class number is not below the number of classes."""
    labels = [picture.labels for picture in used if len(picture.labels)]
    numbers, counts = np.unique(np.concatenate(labels)[:, 0].astype(np.int64), return_counts=True)
    wrong = {int(number): int(count) for number, count in zip(numbers, counts, strict=True) if number >= config.nc}
    if not wrong:
        return
    files = [picture for picture in used if len(picture.labels) and picture.labels[:, 0].max() >= config.nc]
    named = [label_path_of(picture.path) for picture in files[:SHOWN_FILES]]
    more = f" and {len(files) - len(named)} more" if len(files) > len(named) else ""
    by_number = ", ".join(f"class {number}: {count} rows" for number, count in list(wrong.items())[:SHOWN_FILES])
    one_based = numbers[0] == 1 and numbers[-1] == config.nc
    hint = "; the numbers look as if they began at 1 (1-based): subtract 1 from each" if one_based else ""
    raise DataError(
        found=f"{by_number}, but nc is {config.nc} ({config.path}), in {', '.join(named)}{more}{hint}",
        needed=f"class numbers from 0 to {config.nc - 1}",
        remedy=f"correct the label files, or the names in {config.path}",
    )
