"""Reads small files of a machine, real or on paper."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yolov9.errors import UserError

GIVEN_FILE = "facts.json"
"""In a fake root folder: facts that the kernel does not keep in files (affinity, /dev/shm use, GPUs, wheels)."""


@dataclass(frozen=True)
class Tree:
    """A root folder with files as the kernel names them."""

    root: Path
    given: Mapping[str, Any] = field(default_factory=dict)
    """Content of `facts.json` of a fake root; empty for the real one."""

    @property
    def is_this_machine(self) -> bool:
        """True for the real root folder: system calls may be used beside files."""
        return self.root == Path("/")

    def path(self, name: str) -> Path:
        """Returns the path of an absolute or relative name under the root."""
        return self.root / name.lstrip("/")

    def text(self, name: str | Path) -> str | None:
        """Returns a file's text, or None when it cannot be read for any reason."""
        path = name if isinstance(name, Path) else self.path(name)
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):
            return None

    def integer(self, name: str | Path) -> int | None:
        """Returns a file that holds one whole number, or None when it does not."""
        text = self.text(name)
        try:
            return None if text is None else int(text.strip())
        except ValueError:
            return None

    def table(self, name: str | Path) -> dict[str, int]:
        """Returns lines of `name number …` or `name: number …` as a mapping; other lines are left out."""
        rows: dict[str, int] = {}
        for line in (self.text(name) or "").splitlines():
            words = line.replace(":", " ").split()
            if len(words) >= 2 and words[1].lstrip("-").isdigit():
                rows[words[0]] = int(words[1])
        return rows


def open_tree(root: str | Path = "/") -> Tree:
    """Returns the tree of a root folder; reads `facts.json` when the folder is a fake one and has it.

    Raises:
        UserError: there is no such folder, or its `facts.json` is not a JSON mapping.
    """
    path = Path(root)
    if not path.is_dir():
        raise UserError(
            found=f"--root {root}: no such folder",
            needed="a folder with files as the kernel names them, such as proc/meminfo",
            remedy="--root FOLDER, or leave it out for this machine",
        )
    file = path / GIVEN_FILE
    if path == Path("/") or not file.is_file():
        return Tree(path)
    try:
        given = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise bad_given(file, str(error)) from None
    if not isinstance(given, dict):
        raise bad_given(file, "not a mapping")
    return Tree(path, given)


def bad_given(file: Path, problem: str) -> UserError:
    """Returns the error for a `facts.json` that describes no machine."""
    return UserError(
        found=f"{file}: {problem}",
        needed="a JSON mapping with numbers of bytes, as in "
        '{"affinity": 8, "shm": {"size": 67108864}, "gpus": [{"total": 8589934592}]}',
        remedy=f"correct {file}, or remove it",
    )
