"""Coverage-guided fuzzing of the two readers that strangers' files reach first; needs `pip install atheris`.

    python tests/fuzz/coverage_guided.py labels FOLDER -max_total_time=300 -timeout=10 -rss_limit_mb=2048
    python tests/fuzz/coverage_guided.py checkpoint FOLDER -max_total_time=300 -timeout=10 -rss_limit_mb=2048

FOLDER keeps the inputs that reached new code; it may be empty. The first input that raises anything but the errors that
the readers promise, takes too long or too much memory, ends the run and is kept as a file crash-*, timeout-* or oom-*.
"""

import io
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import atheris
import torch

with atheris.instrument_imports(include=["yolov9"]):
    from yolov9.data.labels import HIGHEST_CLASS, parse_labels
    from yolov9.errors import UserError
    from yolov9.model import build_model, read_checkpoint
    from yolov9.model.pickle_machine import PickleMachine
    from yolov9.model.pickle_values import ForbiddenGlobal, PickleError

GRAPH = Path(__file__).parents[1] / "unit" / "engine" / "tiny-graph.yaml"
LABELS = (b"0 0.5 0.5 0.25 0.25\n1 .1 .1 .2 .1 .2 .2\n", b"\xef\xbb\xbf# a\r\n1\t1.00005 1 0.5 0.5\n")


def read_labels(data: bytes) -> None:
    """Labels are finite, within the picture, and of a class that float32 can hold."""
    parsed = parse_labels(data)
    assert parsed.labels.shape == (len(parsed.segments), 5)
    assert ((parsed.labels[:, 1:] >= 0) & (parsed.labels[:, 1:] <= 1)).all()
    assert ((parsed.labels[:, 0] >= 0) & (parsed.labels[:, 0] <= HIGHEST_CLASS)).all()
    assert not (parsed.refused and len(parsed.labels))


def seeds_of_checkpoints() -> tuple[bytes, dict[str, bytes]]:
    """The pickle of a small checkpoint, and the other parts of its archive."""
    file = io.BytesIO()
    torch.save({"model": build_model(str(GRAPH), nc=2).state_dict(), "epoch": 3, "names": ["a", "b"]}, file)
    with zipfile.ZipFile(file) as archive:
        parts = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    return parts.pop("data.pkl"), parts


def checkpoint_reader(parts: dict[str, bytes], path: Path) -> Callable[[bytes], None]:
    """Returns a target that reads a pickle alone, and inside of an archive whose checksums are right."""

    def read(data: bytes) -> None:
        try:
            PickleMachine().run(io.BytesIO(data))
        except (PickleError, ForbiddenGlobal, ValueError, EOFError):
            return  # `WeightFile` turns these into a UserError
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in {**parts, "data.pkl": data}.items():
                archive.writestr(f"archive/{name}", content)
        try:
            read_checkpoint(path)
        except UserError:
            return

    return read


def main(what: str, corpus: Path, *options: str) -> None:
    """Fuzzes until an option of libFuzzer ends it."""
    corpus.mkdir(parents=True, exist_ok=True)
    target: Callable[[bytes], None] = read_labels
    seeds = list(LABELS)
    if what == "checkpoint":
        pickled, parts = seeds_of_checkpoints()
        target, seeds = checkpoint_reader(parts, Path(tempfile.mkdtemp(dir="/dev/shm")) / "weights.pt"), [pickled]
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    atheris.Setup([sys.argv[0], str(corpus), *options], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
