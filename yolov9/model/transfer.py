"""Starts a model from a checkpoint: tensors that mean the same go over, the rest stays as it was drawn."""

from dataclasses import dataclass, field

import torch

from yolov9.logs import LOG
from yolov9.model.build import build_graph
from yolov9.model.checkpoint import Checkpoint
from yolov9.model.detector import DetectionModel
from yolov9.model.main_branch import MainBranch, main_branch


@dataclass(frozen=True)
class TransferReport:
    """What a transfer did; names are those of the model, except `unused`."""

    loaded: list[str] = field(default_factory=list)
    """Tensors taken from the checkpoint."""
    missing: list[str] = field(default_factory=list)
    """Tensors that the checkpoint does not have: they start fresh."""
    mismatched: list[str] = field(default_factory=list)
    """Tensors that the checkpoint has in another shape: they start fresh."""
    unused: list[str] = field(default_factory=list)
    """Tensors of the checkpoint that the model has no place for."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the log."""


def transfer(model: DetectionModel, checkpoint: Checkpoint) -> TransferReport:
    """Copies the weights of `checkpoint` into `model` as far as they fit, and logs what does not.

    Same kind of head: by name. Single into dual: the main branch is loaded and the auxiliary branch stays fresh. Dual
    into single: the main branch is taken. Tensors of another shape (other classes, other widths) stay fresh.
    """
    sources = _sources(model, checkpoint)
    report = TransferReport()
    used = set()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            source = sources.get(name)
            tensor = None if source is None else checkpoint.state_dict.get(source)
            if tensor is None or source is None:
                report.missing.append(name)
            elif tensor.shape != value.shape:
                report.mismatched.append(name)
                used.add(source)
            else:
                value.copy_(tensor)
                report.loaded.append(name)
                used.add(source)
    report.unused.extend(name for name in checkpoint.state_dict if name not in used)
    report.notes.extend(_notes(model, checkpoint, report))
    for note in report.notes:
        LOG.info("%s", note)
    if 2 * len(report.loaded) < len(sources):
        LOG.warning("weights: most tensors of %s do not fit %s", checkpoint.spec.name, model.graph_name)
    return report


def _sources(model: DetectionModel, checkpoint: Checkpoint) -> dict[str, str]:
    """Name in the model -> name in the checkpoint."""
    dual = checkpoint.kind == "dual"
    if model.is_dual == dual:
        return {name: name for name in checkpoint.state_dict}
    ours, theirs = main_branch(model.spec), main_branch(checkpoint.spec)
    with torch.device("meta"):
        names = build_graph(ours.graph).state_dict()
    return {ours.own_name(name): theirs.own_name(name) for name in names if _same_row(ours, theirs, name)}


def _same_row(ours: MainBranch, theirs: MainBranch, name: str) -> bool:
    number = int(name.split(".", 2)[1])
    rows = theirs.graph.rows
    return number < len(rows) and rows[number].type == ours.graph.rows[number].type


def _notes(model: DetectionModel, checkpoint: Checkpoint, report: TransferReport) -> list[str]:
    whole = len(report.loaded) + len(report.missing) + len(report.mismatched)
    notes = [f"weights: {len(report.loaded)} of {whole} tensors taken from {checkpoint.spec.name}"]
    if model.is_dual and checkpoint.kind == "single":
        notes.append("weights: main branch loaded; the auxiliary branch starts fresh, the checkpoint has none")
    if not model.is_dual and checkpoint.kind == "dual":
        notes.append("weights: main branch taken; the auxiliary branch of the checkpoint is left out")
    if model.nc != checkpoint.nc:
        notes.append(
            f"weights: {checkpoint.nc} classes there, {model.nc} here; class layers that do not fit start fresh"
        )
    elif report.mismatched:
        notes.append(f"weights: {len(report.mismatched)} tensors have another shape and start fresh")
    return notes
