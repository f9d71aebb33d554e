"""Keeps what the scan found about picture files in the cache folder, never in the data set.

A plain NPZ without pickles. Labels are not kept: they are read afresh at each start, so an edit can never be missed.
"""

import contextlib
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL

from yolov9.data.flat import join_bytes, split_bytes
from yolov9.data.scan import ImageFacts
from yolov9.logs import LOG

FORMAT = f"yolov9-scan-1 opencv {cv2.__version__} pillow {PIL.__version__}"
"""First entry of a cache file; with other decoders other pictures can be read, so their versions are part of it."""


class ScanCache:
    """Facts about the pictures of one split, in one file.

    Args:
        folder: cache folder; None for none.
        sources: folders and list files of the split; they name the file.
    """

    def __init__(self, folder: Path | None, sources: tuple[Path, ...]) -> None:
        self.path: Path | None = None
        if folder is not None:
            digest = hashlib.blake2b("\0".join(map(str, sources)).encode("utf-8", "surrogateescape"), digest_size=12)
            self.path = folder / "scans" / f"{digest.hexdigest()}.npz"

    def load(self) -> dict[str, ImageFacts]:
        """Returns the facts by path; nothing when there is no file or it cannot be used (said in one line)."""
        if self.path is None or not self.path.is_file():
            return {}
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                if str(arrays["format"]) != FORMAT:
                    raise ValueError(f"written by another version ({str(arrays['format'])[:60]})")
                return _facts(arrays)
        except Exception as error:  # a damaged archive raises any of a dozen types
            LOG.warning("scan cache %s is not used (%s); the pictures are checked again", self.path, error)
            return {}

    def save(self, facts: dict[str, ImageFacts]) -> None:
        """Writes the file (complete or not at all); says in one line when that is not possible."""
        if self.path is None:
            LOG.info("no cache folder: pictures will be checked again at the next start")
            return
        temporary = self.path.with_suffix(f".{secrets.token_hex(4)}.tmp")  # containers may have equal process numbers
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as file:
                np.savez(file, **_arrays(facts))
            temporary.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            LOG.info(
                "cache folder %s: %s; pictures will be checked again at the next start",
                self.path.parent,
                error.strerror,
            )


def _arrays(facts: dict[str, ImageFacts]) -> dict[str, Any]:
    paths, path_offsets = join_bytes(os.fsencode(path) for path in facts)
    values = facts.values()
    notes = {row: fact.note for row, fact in enumerate(values) if fact.note}
    return {
        "format": np.array(FORMAT),
        "paths": paths,
        "path_offsets": path_offsets,
        "stamps": np.array([fact.stamp for fact in values], np.int64).reshape(-1, 3),
        "sizes": np.array([(fact.width, fact.height) for fact in values], np.int32).reshape(-1, 2),
        "notes": np.frombuffer(json.dumps(notes).encode(), np.uint8),
    }


def _facts(arrays: "np.lib.npyio.NpzFile") -> dict[str, ImageFacts]:
    paths = map(os.fsdecode, split_bytes(arrays["paths"], arrays["path_offsets"]))
    stamps, sizes = arrays["stamps"].tolist(), arrays["sizes"].tolist()
    notes = {int(row): str(note) for row, note in json.loads(arrays["notes"].tobytes()).items()}
    return {
        path: ImageFacts((stamp[0], stamp[1], stamp[2]), size[0], size[1], notes.get(row, ""))
        for row, (path, stamp, size) in enumerate(zip(paths, stamps, sizes, strict=True))
    }
