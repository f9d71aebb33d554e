"""Looks for the label file of a picture where it does not belong, so that an error can say where it is."""

from itertools import product
from pathlib import Path

from yolov9.data.listing import label_path_of

FOLDERS = ("labels", "Labels", "label", "annotations", "Annotations")
SUFFIXES = (".txt", ".TXT", ".xml", ".json")
DEPTH = 3
"""So many folders above a picture may have one for labels in their place or beside them."""


def find_label_elsewhere(picture: str) -> str | None:
    """Returns a file that looks like the label file of a picture, at another place than the one that is read.

    Args:
        picture: absolute path.
    """
    path = Path(picture)
    folders = [path.parent]
    for above, name in product(list(path.parents)[: DEPTH + 1], FOLDERS):
        below = path.parent.relative_to(above)
        folders += [above / name / below, above / name / Path(*below.parts[1:]), above / name]
    expected = label_path_of(picture)
    for folder in dict.fromkeys(folders):
        for stem, suffix in product((path.stem, path.name), SUFFIXES):
            found = folder / (stem + suffix)
            if str(found) != expected and found.is_file():
                return str(found)
    return None
