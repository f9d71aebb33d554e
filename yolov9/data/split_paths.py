"""Finds the folder or list file that an entry of a data.yaml means, wherever the data set was moved to."""

import re
from dataclasses import dataclass
from pathlib import Path

from yolov9.read_watch import reading

MOST_DROPPED = 4
"""Leading folders that an export may have put before the path; a text of 100,000 folders is not looked for as long."""
LONGEST_END = 16
"""Names at the end of a path from another machine that are looked for beside the YAML, at the most."""
_DRIVE = re.compile(r"^[A-Za-z]:/")
_PARENTS = re.compile(r"^(\.\./)+")


@dataclass(frozen=True)
class SplitEntry:
    """Where one entry leads."""

    found: Path | None
    """Folder or file that exists; None when there is none."""
    tried: tuple[Path, ...]
    """Every path that was looked at, in order."""
    note: str = ""
    """What had to be assumed; "" when the entry was right as it stood."""


def resolve_entry(value: str, root: Path, yaml_dir: Path, *, folder_only: bool = False) -> SplitEntry:
    """Resolves a path of a data.yaml; the working directory plays no part.

    Tried in this order: relative to `root`, relative to the folder of the YAML; then without leading "../" (exports
    whose paths assume another parent) and without leading folders (exports that name the folder of the data set, as
    "NAME-3/train/images" and "data/obj_train_data/x.jpg"); for an absolute path that is not there, its end beside the
    YAML.

    Args:
        value: the entry as typed; backslashes count as slashes.
        root: folder that the entry is relative to.
        yaml_dir: folder of the data.yaml.
        folder_only: accept folders only.
    """
    text = value.strip().replace("\\", "/")
    absolute = text.startswith("/") or bool(_DRIVE.match(text))
    candidates = _candidates(text, root, yaml_dir, absolute=absolute)
    if folder_only and absolute:
        candidates = candidates[:1]
    for path in candidates:
        if _is_there(path, folder_only=folder_only):
            return SplitEntry(path, tuple(candidates), _note(value, path, candidates, backslashes="\\" in value))
    return SplitEntry(None, tuple(candidates))


def _is_there(path: Path, *, folder_only: bool) -> bool:
    try:
        with reading(path):
            return path.is_dir() or (path.is_file() and not folder_only)
    except OSError:  # too long for a name, or a folder that may not be entered
        return False


def _candidates(text: str, root: Path, yaml_dir: Path, *, absolute: bool) -> list[Path]:
    if absolute:
        parts = Path(text).parts[1:]
        ends = [yaml_dir.joinpath(*parts[start:]) for start in range(max(1, len(parts) - LONGEST_END), len(parts))]
        paths = [Path(text), *ends]
    else:
        plain = _PARENTS.sub("", text)
        parts = Path(plain).parts
        # Of two names or more: "images" alone could be those of another split.
        ends = [yaml_dir.joinpath(*parts[start:]) for start in range(1, min(MOST_DROPPED + 1, len(parts) - 1))]
        paths = [root / text, yaml_dir / text, root / plain, yaml_dir / plain, *ends]
    return list(dict.fromkeys(_tidy(path) for path in paths))


def _tidy(path: Path) -> Path:
    """Removes "." and "x/.." from an absolute path without following links."""
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and len(parts) > 1:
            parts.pop()
        elif part != "..":
            parts.append(part)
    return Path(*parts)


def _note(value: str, path: Path, candidates: list[Path], *, backslashes: bool) -> str:
    if path != candidates[0]:
        return f"{value!r} is not there; {path} is used instead"
    return f"{value!r} has backslashes; read as {path}" if backslashes else ""
