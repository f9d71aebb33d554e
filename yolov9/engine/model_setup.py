"""The model that a run trains: a fresh one, one that starts from other weights, or that of a resumed run."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from yolov9.config.environment import Environment
from yolov9.config.settings import DEFAULT_MODEL, TrainSettings
from yolov9.engine.distributed import Ranks
from yolov9.engine.find_weights import find_weights
from yolov9.engine.precision import Precision
from yolov9.errors import UserError
from yolov9.logs import LOG
from yolov9.model import DetectionModel, build_model, read_checkpoint, transfer


def make_model(
    settings: TrainSettings, names: list[str], environment: Environment, resumed: dict[str, Any] | None
) -> DetectionModel:
    """Builds the model of a run on the CPU, with class names.

    Args:
        settings: `cfg` and `weights` decide.
        names: class names of the data set.
        environment: says where weights named without a folder are looked for.
        resumed: content of the checkpoint that is resumed; its graph is taken, its weights are loaded later.

    Raises:
        UserError: unknown model, missing weights, or a resumed run with other classes than the data set.
    """
    if resumed is not None:
        model = build_model(resumed["graph"], nc=resumed["nc"])
        _check_names(list(resumed["names"]), names)
    elif settings.weights:
        model = _from_weights(settings.cfg, find_weights(settings.weights, environment), len(names))
    else:
        model = build_model(settings.cfg or DEFAULT_MODEL, nc=len(names))
    model.names = names
    return model


def freeze_layers(model: nn.Module, freeze: list[int]) -> int:
    """Stops the training of some layers; their batch statistics still follow the data.

    Args:
        model: model whose layers are called `model.NUMBER`.
        freeze: one number N for the first N layers, or several numbers of layers.

    Returns:
        Number of frozen tensors.

    Raises:
        UserError: nothing would be left to train.
    """
    layers = freeze if len(freeze) > 1 else range(freeze[0] if freeze else 0)
    prefixes = tuple(f"model.{layer}." for layer in layers)
    frozen = [parameter for name, parameter in model.named_parameters() if prefixes and name.startswith(prefixes)]
    for parameter in frozen:
        parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        last = max(int(name.split(".")[1]) for name, _ in model.named_parameters())
        raise UserError(
            found=f"--freeze {' '.join(map(str, freeze))}: all layers of the model, which are 0 to {last}",
            needed="at least one layer that is trained",
            remedy=f"--freeze {last} trains the head alone; --freeze 0 trains everything",
        )
    if frozen:
        LOG.info("frozen: %d tensors of layers %s", len(frozen), ", ".join(map(str, layers)))
    return len(frozen)


def place_model(model: DetectionModel, precision: Precision, ranks: Ranks, *, sync_bn: bool) -> DetectionModel:
    """Moves a model to its device in the memory format that its convolutions want, in training mode."""
    if sync_bn and ranks.world > 1 and precision.device.type == "cuda":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]  # not annotated in torch
    # Batches arrive channels-last from the loader; on the CPU a step is a tenth faster that way, on a GPU much more.
    # mypy does not know the keyword form that moves and reorders at once.
    model = model.to(device=precision.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model.train()


def _from_weights(cfg: str, path: Path, classes: int) -> DetectionModel:
    checkpoint = read_checkpoint(path)
    width = checkpoint.class_width if cfg else None
    model = build_model(cfg or checkpoint.graph, nc=classes, class_width=width)
    report = transfer(model, checkpoint)
    LOG.info("weights: %d of %d tensors from %s", len(report.loaded), len(model.state_dict()), path)
    return model


def _check_names(saved: list[str], names: list[str]) -> None:
    if len(saved) != len(names):
        raise UserError(
            found=f"the resumed run has {len(saved)} classes, the data set {len(names)}",
            needed="the data set that the run was started with",
            remedy="--data with the former data set, or --weights RUN/weights/best.pt to start a new run",
        )
    if saved != names:
        LOG.warning("class names differ from those of the resumed run; the names of the data set are used")
