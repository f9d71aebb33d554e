"""Downloads official weights into a folder and checks their SHA-256. Used while the image is built, never at run time.

    python env/fetch_weights.py --weights yolov9-s,yolov9-c --out weights

Standard library only, so that the build stage needs nothing but Python. What exists and which hash it must have stands
in weights.json; a file without a known hash is refused, because its content could not be told from a forged one.
"""

import argparse
import hashlib
import http.client
import json
import shutil
import sys
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MANIFEST = Path(__file__).with_name("weights.json")
CHUNK_BYTES = 1 << 20
TIMEOUT_S = 60.0
"""Longest silence of the server; a file of 140 MB may take longer than this in all."""

EXIT_FAILED = 1


class WeightsError(Exception):
    """A wish that cannot be met, or a file that is not the one listed; the text says what, and what to do."""


@dataclass(frozen=True)
class WeightsFile:
    """One line of the manifest."""

    file: str
    sha256: str | None
    size_bytes: int | None
    how_sure: str
    sources: tuple[str, ...]


def read_manifest(path: Path) -> tuple[dict[str, WeightsFile], str]:
    """Returns the listed files by name, and the address pattern with `{file}` in it."""
    content = json.loads(path.read_text(encoding="utf-8"))
    explained = content["sources"]
    files = {
        entry["file"]: WeightsFile(
            entry["file"],
            entry["sha256"],
            entry["bytes"],
            entry["how_sure"],
            tuple(explained[source] for source in entry["sources"]),
        )
        for entry in content["files"]
    }
    return files, content["release"]["url"]


def choose(wish: str, files: dict[str, WeightsFile]) -> list[WeightsFile]:
    """Turns `none`, `all` or a list of names separated by commas or blanks into files of the manifest.

    A model name means the form for use: `yolov9-s` is yolov9-s-converted.pt, `gelan-c` is gelan-c.pt. A file name
    means that file. `all` means every file whose hash is known.

    Raises:
        WeightsError: a name is not listed, or its hash is not known.
    """
    names = wish.replace(",", " ").split()
    if names in ([], ["none"]):
        return []
    if names == ["all"]:
        return [entry for entry in files.values() if entry.sha256]
    return list({entry.file: entry for entry in (_find(name, files) for name in names)}.values())


def _find(name: str, files: dict[str, WeightsFile]) -> WeightsFile:
    spellings = [name] if name.endswith(".pt") else [f"{name}-converted.pt", f"{name}.pt"]
    entry = next((files[spelling] for spelling in spellings if spelling in files), None)
    known = ", ".join(sorted(entry.file for entry in files.values() if entry.sha256))
    if entry is None:
        raise WeightsError(f"found:  WEIGHTS names {name!r}\nneeded: none, all, or some of: {known}")
    if entry.sha256 is None:
        raise WeightsError(
            f"found:  no SHA-256 is known for {entry.file} ({entry.how_sure})\n"
            f"needed: a file whose content can be checked, one of: {known}\n"
            f"type:   leave {name} out, and mount your own copy at run time: -v FOLDER:/weights:ro"
        )
    return entry


def fetch(entry: WeightsFile, url: str, folder: Path) -> Path:
    """Downloads one file, checks it, and only then gives it its name.

    Raises:
        WeightsError: the server does not give it, or gives another content.
    """
    part = folder / f"{entry.file}.part"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response, part.open("wb") as target:
            shutil.copyfileobj(response, target, CHUNK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        part.unlink(missing_ok=True)
        raise WeightsError(f"found:  {url} cannot be downloaded: {error}\nneeded: a reachable address") from error
    got, size = sha256_of(part), part.stat().st_size
    if got != entry.sha256:
        part.unlink()
        raise WeightsError(_mismatch(entry, url, got, size))
    part.chmod(0o644)
    return part.rename(folder / entry.file)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mismatch(entry: WeightsFile, url: str, got: str, size: int) -> str:
    lines = [
        f"found:  {url} is not the file that weights.json lists",
        f"        got      sha256 {got}, {size} bytes",
        f"        expected sha256 {entry.sha256}, {entry.size_bytes} bytes",
        f"        how sure the expected value is: {entry.how_sure}; it comes from",
        *(f"        - {source}" for source in entry.sources),
        "needed: the listed content, or a corrected entry if the release has replaced the file since",
        "type:   build again; if it stays so, compare the hash on the release page with env/weights.json",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Downloads official YOLOv9 weights and checks their SHA-256.")
    parser.add_argument("--weights", default="none", help="none, all, or names: yolov9-s,yolov9-c.pt,gelan-c")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--url", default="", help="address that replaces the release's; the file name is appended")
    parser.add_argument("--manifest", type=Path, default=MANIFEST, help="another list in the form of weights.json")
    wanted = parser.parse_args(arguments)
    files, pattern = read_manifest(wanted.manifest)
    wanted.out.mkdir(parents=True, exist_ok=True)
    try:
        for entry in choose(wanted.weights, files):
            url = f"{wanted.url.rstrip('/')}/{entry.file}" if wanted.url else pattern.format(file=entry.file)
            path = fetch(entry, url, wanted.out)
            print(f"{path}: {path.stat().st_size} bytes, SHA-256 as listed ({entry.how_sure})", flush=True)
    except WeightsError as error:
        print(f"fetch_weights:\n{error}", file=sys.stderr)
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
