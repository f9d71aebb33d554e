"""File names made from texts that others chose: class names, picture names, stream addresses."""

import hashlib
import unicodedata
from pathlib import Path

LONGEST_NAME_BYTES = 180
"""File systems allow 255 bytes; frame numbers and suffixes are added to this."""

HASH_CHARACTERS = 8
UNNAMED = "unnamed"
"""Name for a text of which nothing is left."""
FORBIDDEN = frozenset('/\\:*?"<>|')
"""Separators, and what Windows and network shares refuse."""


def safe_name(text: str) -> str:
    """Returns a single path component that is close to a text and can be a file or folder name anywhere.

    Separators and control characters become `_`; leading and trailing dots and spaces go, so that `..` cannot lead out
    of a folder; a long text is cut and gets a hash, so that two long texts stay apart.

    Args:
        text: any text, also with undecodable bytes.
    """
    clean = "".join("_" if char in FORBIDDEN or unicodedata.category(char) == "Cc" else char for char in text)
    clean = clean.strip(". ") or UNNAMED
    data = clean.encode("utf-8", "surrogateescape")
    if len(data) <= LONGEST_NAME_BYTES:
        return clean
    digest = hashlib.sha256(data).hexdigest()[:HASH_CHARACTERS]
    return data[: LONGEST_NAME_BYTES - HASH_CHARACTERS - 1].decode("utf-8", "ignore") + "-" + digest


class UniqueNames:
    """Gives every origin its own name in one folder: `x`, then `x_2`, `x_3` for later ones of that name."""

    def __init__(self) -> None:
        self._by_origin: dict[str, str] = {}
        self._taken: set[str] = set()

    def name(self, origin: str) -> str:
        """Returns the name without suffix for a path or address; the same origin gets the same name again."""
        if origin not in self._by_origin:
            stem = origin.partition("://")[2] if "://" in origin else Path(origin).stem
            wanted = name = safe_name(stem)
            number = 1
            while name.casefold() in self._taken:
                number += 1
                name = f"{wanted}_{number}"
            self._taken.add(name.casefold())
            self._by_origin[origin] = name
        return self._by_origin[origin]
