"""Checkpoint files: their content, how they are written, and which one a resume takes.

Only tensors and plain types are stored, so that reading a file never runs code from it.
"""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from yolov9 import __version__
from yolov9.engine.atomic_file import previous_of, write_atomically
from yolov9.engine.checkpoint_form import misfit
from yolov9.engine.host_copy import copy_to_host, largest_values
from yolov9.errors import DataError, UserError, first_line
from yolov9.logs import LOG

FORMAT = "yolov9-checkpoint-1"
LAST = "last.pt"
BEST = "best.pt"


@dataclass(frozen=True)
class ModelFacts:
    """What a checkpoint needs, besides tensors, to build its model again."""

    graph: dict[str, Any]
    """Graph as `build_model` takes it."""
    graph_name: str
    names: list[str]
    """Class names."""

    @property
    def nc(self) -> int:
        """Number of classes."""
        return len(self.names)


@dataclass
class Progress:
    """Where a run stands. `epoch` and `batch` name the next micro-batch to train on."""

    epoch: int = 0
    """Epoch that is being trained; `batch == batches of an epoch` means that only its validation is missing."""
    batch: int = 0
    """Micro-batches of that epoch that are done."""
    last_step: int = -1
    """Iteration of the last optimizer step."""
    optimizer_steps: int = 0
    """Optimizer steps so far."""
    best_score: float = 0.0
    best_epoch: int = 0
    loss_sums: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0, 0.0])
    """Sums of box, class and distribution loss over the epoch so far, and the number of micro-batches in them."""
    rows: list[list[str]] = field(default_factory=list)
    """Rows of results.csv, one of each epoch that is complete, so that none is lost with that file."""
    finished: bool = False
    """The run has come to its end, by its epochs or by its patience."""


def training_content(
    facts: ModelFacts,
    progress: Progress,
    model: Mapping[str, Tensor],
    ema: Mapping[str, Tensor],
    training: dict[str, Any],
) -> dict[str, Any]:
    """Returns the content of a file that a run can be resumed from."""
    # The file is written in a thread, while the run adds rows to its list.
    now = {**vars(progress), "rows": list(progress.rows)}
    return {
        **_head(facts),
        "model": dict(model),
        "ema": dict(ema),
        "epoch": progress.epoch,
        "training": {**training, "progress": now},
    }


def final_content(facts: ModelFacts, ema: Mapping[str, Tensor], epoch: int) -> dict[str, Any]:
    """Returns the content of a file for detection only: copies of the average's weights, in half precision."""
    return {**_head(facts), "model": copy_to_host(_halved(ema)), "ema": None, "epoch": epoch, "training": None}


def _head(facts: ModelFacts) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "graph": facts.graph,
        "graph_name": facts.graph_name,
        "names": list(facts.names),
        "nc": facts.nc,
        "versions": {"yolov9": __version__, "torch": str(torch.__version__)},
    }


def write_checkpoint(path: Path, content: dict[str, Any], *, keep_previous: bool) -> None:
    """Writes a checkpoint so that a crash leaves the old file or the new one.

    Raises:
        OSError: it could not be written; the old file is still there.
    """
    write_atomically(path, lambda file: torch.save(content, file), keep_previous=keep_previous)  # type: ignore[arg-type]  # only write and flush are used


def read_training_checkpoint(path: Path) -> dict[str, Any]:
    """Reads a checkpoint that a run can be resumed from, after comparing every part of the file with its checksum.

    Raises:
        DataError: damaged, or not a checkpoint of this program.
        UserError: one without a training state.
    """
    reason = _damage(path)
    if reason is None:
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # the unpickler raises a dozen types for what torch.save has not written
            reason = f"not readable ({first_line(error)})"
    if reason is None and not (isinstance(content, dict) and content.get("format") == FORMAT):
        reason = "not a checkpoint of this program"
    if reason is None and content.get("training"):
        reason = misfit(content)
    needed = "a last.pt that this program wrote during training"
    if reason is not None:
        best = path.with_name(BEST)
        fresh = f"--weights {best}" if best != path and best.exists() else "without --resume"
        raise DataError(f"{path}: {reason}", needed, f"--resume with the last.pt of another run, or a new run: {fresh}")
    if not content.get("training"):
        raise UserError(
            found=f"{path}: holds weights only, no training state (best.pt is made for detection)",
            needed=needed,
            remedy=f"--resume RUN/weights/{LAST}, or --weights {path} to start a new run from these weights",
        )
    return dict(content)


def newest_loadable(path: Path) -> tuple[Path, dict[str, Any]]:
    """Returns the file that a run is resumed from, and its content.

    Args:
        path: a checkpoint, a run folder or its `weights` folder. When the file itself is damaged or missing, the
            generation before it is taken, and said.

    Raises:
        UserError: none can be loaded.
    """
    first = path if path.suffix == ".pt" else path / LAST if path.name == "weights" else path / "weights" / LAST
    problem: UserError | None = None
    for candidate in (first, previous_of(first)):
        if not candidate.exists():
            continue
        try:
            content = read_training_checkpoint(candidate)
        except UserError as error:
            LOG.warning("cannot resume from %s", error.found)
            problem = problem or error
            continue
        if candidate != first:
            LOG.warning("resuming from the generation before, %s", candidate)
        return candidate, content
    raise problem or UserError(
        found=f"nothing to resume: {first} does not exist",
        needed="a last.pt of an earlier run",
        remedy="leave --resume out to start a new run, or --resume RUN/weights/last.pt",
    )


def _halved(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Half precision ends at 65504; a tensor with larger values, such as a variance, stays as it is."""
    floats = [name for name, value in tensors.items() if value.is_floating_point()]
    largest = largest_values([tensors[name] for name in floats])
    fitting = {name for name, value in zip(floats, largest, strict=True) if value <= torch.finfo(torch.float16).max}
    return {name: value.half() if name in fitting else value for name, value in tensors.items()}


def _damage(path: Path) -> str | None:
    """Names what is wrong with the file as an archive; torch itself does not compare the checksums."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    # RuntimeError is zipfile's word for encryption, and a kind of it for compression, that no archive of ours has.
    except (OSError, zipfile.BadZipFile, EOFError, ValueError, RuntimeError) as error:
        return f"damaged or incomplete ({error})"
    return f"damaged at {broken}" if broken else None
