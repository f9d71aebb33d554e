"""What a run remembers in a checkpoint, and how a new process takes it up again."""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from yolov9.data import DatasetIndex
from yolov9.engine.checkpoint import Progress, training_content
from yolov9.engine.divergence import diverged
from yolov9.engine.gpu_failure import is_gpu_failure
from yolov9.engine.host_copy import all_finite, copy_to_host
from yolov9.engine.optimizer import load_optimizer_state, optimizer_state
from yolov9.engine.out_of_memory import is_out_of_memory
from yolov9.engine.session import Session
from yolov9.errors import DataError, first_line
from yolov9.logs import LOG

SEPARATOR = "::"
"""Between parameter name and state name while all optimizer tensors travel in one mapping."""


def capture(session: Session) -> dict[str, Any]:
    """Copies the whole state of a run to the memory of the host and returns it as the content of a checkpoint.

    Raises:
        UserError: a weight is not a finite number; such a checkpoint must never replace a good one.
    """
    context, step = session.context, session.step
    model, ema = session.model_state, session.average_state
    if not (all_finite(model) and all_finite(ema)):
        raise diverged("the training has diverged: a weight is not a finite number; the checkpoint before stays")
    progress = session.progress
    progress.best_score, progress.best_epoch = session.stopper.best_score, session.stopper.best_epoch
    progress.loss_sums = step.meter.state()
    flat = {
        f"{name}{SEPARATOR}{key}": value
        for name, state in optimizer_state(session.optimizer, session.groups).items()
        for key, value in state.items()
    }
    training = {
        "optimizer": {"kind": context.settings.optimizer, "state": _nested(copy_to_host(flat))},
        "gradients": copy_to_host(_pending_gradients(session)),
        "scaler": step.scaler.state_dict(),
        "ema_updates": session.ema.updates,
        "batches_per_epoch": session.schedule.batches_per_epoch,
        "batch": context.batch,
        "world": context.ranks.world,
        "pictures_per_step": context.pictures_per_step,
        "data": {"pictures": len(session.train_index), "checksum": session.train_index.checksum},
        "rng": _random_states(context.precision.device),
        "settings": asdict(context.settings),
        "recipe": context.recipe.as_dict(),
    }
    return training_content(session.facts, progress, copy_to_host(model), copy_to_host(ema), training)


def restore(session: Session, content: dict[str, Any]) -> None:
    """Brings a fresh session to the state that `capture` returned.

    Another batch size or number of ranks moves the position to the same share of the epoch: no picture is skipped,
    those of the last micro-batch may come twice.

    Raises:
        DataError: the tensors are not those of this model.
    """
    try:
        _restore(session, content)
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        if is_out_of_memory(error) or is_gpu_failure(error):
            raise
        raise DataError(
            found=f"the checkpoint does not belong to its own graph and settings: {first_line(error)}",
            needed="a last.pt as this program wrote it",
            remedy="--resume with the last.pt of another run, or a new run with --weights",
        ) from error


def _restore(session: Session, content: dict[str, Any]) -> None:
    training = content["training"]
    session.model.load_state_dict(content["model"])
    session.step.flat.refresh_compute_copies()
    session.ema.model.load_state_dict(content["ema"])
    session.ema.updates = training["ema_updates"]
    saved = training["optimizer"]
    unfit = load_optimizer_state(session.optimizer, session.groups, saved["state"])
    if unfit and training["progress"]["optimizer_steps"]:
        LOG.warning("optimizer state of %d tensors starts afresh, the first is %s", len(unfit), unfit[0])
    if session.step.scaler.is_enabled() and training["scaler"]:
        session.step.scaler.load_state_dict(training["scaler"])
    session.progress = _position(session, training)
    ranks = session.context.ranks
    if ranks.is_first and training["world"] != ranks.world:
        LOG.info("  overridden  ranks = %d (was %d)", ranks.world, training["world"])
    if session.context.ranks.is_first:
        _compare_data(session.train_index, training.get("data"))
        # Those of all ranks were gathered here; the others start with zeros.
        _load_gradients(session, training["gradients"])
        session.step.meter.load(session.progress.loss_sums)
    session.stopper.best_score = session.progress.best_score
    session.stopper.best_epoch = session.progress.best_epoch
    _load_random_states(training["rng"], session.context.precision.device)


def _compare_data(index: DatasetIndex, saved: dict[str, int] | None) -> None:
    """Warns of a training set that changed since the checkpoint; one of an older version does not know its own."""
    if saved is None or saved["checksum"] == index.checksum:
        return
    had, has = saved["pictures"], len(index)
    change = f"it had {had} pictures and has {has}" if had != has else "its labels or pictures are others"
    LOG.warning("the training set has changed since the checkpoint: %s; the run goes on with those of now", change)


def _position(session: Session, training: dict[str, Any]) -> Progress:
    progress = Progress(**training["progress"])
    before, now = training["batches_per_epoch"], session.schedule.batches_per_epoch
    former = training["batch"] * training["world"]
    current = session.context.batch * session.context.ranks.world
    if (before, former) == (now, current):
        return progress
    pending = progress.epoch * before + progress.batch - 1 - progress.last_step
    complete = progress.batch >= before
    progress.batch = now if complete else min(progress.batch * former // current, now - 1)
    progress.last_step = progress.epoch * now + progress.batch - 1 - round(pending * former / current)
    return progress


def _pending_gradients(session: Session) -> dict[str, Tensor]:
    """Gradients of micro-batches that no optimizer step has used yet; empty right after a step."""
    if session.progress.last_step == session.iteration - 1:
        return {}
    return {name: parameter.grad for group in session.groups for name, parameter in group if parameter.grad is not None}


def _load_gradients(session: Session, saved: dict[str, Tensor]) -> None:
    for group in session.groups:
        for name, parameter in group:
            if name in saved and parameter.requires_grad:
                assert parameter.grad is not None
                parameter.grad.copy_(saved[name])


def _nested(flat: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    nested: dict[str, dict[str, Tensor]] = {}
    for path, value in flat.items():
        name, key = path.split(SEPARATOR)
        nested.setdefault(name, {})[key] = value
    return nested


def _random_states(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _load_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
