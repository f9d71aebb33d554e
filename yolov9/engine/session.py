"""Makes everything that a training run needs from its context."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from yolov9.data import DatasetIndex, load_dataset_config
from yolov9.data.loader import Loader, open_loader
from yolov9.engine.checkpoint import ModelFacts, Progress
from yolov9.engine.distributed import copy_from_first
from yolov9.engine.early_stop import EarlyStop
from yolov9.engine.ema import ModelEma
from yolov9.engine.flat import FlatParameters
from yolov9.engine.loader_setup import train_loader_settings, val_loader_settings
from yolov9.engine.model_setup import freeze_layers, make_model, place_model
from yolov9.engine.optimizer import ParameterGroups, build_optimizer, group_parameters
from yolov9.engine.optional_file import optional_file
from yolov9.engine.run_context import RunContext
from yolov9.engine.schedule import Schedule, lr_shape, scaled_weight_decay
from yolov9.engine.step import TrainStep
from yolov9.loss import DetectionLoss, LossSettings
from yolov9.model import DetectionModel


@dataclass
class Session:
    """The parts of one run."""

    context: RunContext
    model: DetectionModel
    loss: DetectionLoss
    groups: ParameterGroups
    optimizer: Optimizer
    ema: ModelEma[DetectionModel]
    step: TrainStep
    schedule: Schedule
    stopper: EarlyStop
    progress: Progress
    train_loader: Loader
    val_loader: Loader | None
    """None on ranks that do not validate."""
    train_index: DatasetIndex

    @property
    def facts(self) -> ModelFacts:
        """What a checkpoint needs besides tensors."""
        return ModelFacts(self.model.graph, self.model.graph_name, list(self.model.names))

    @property
    def iteration(self) -> int:
        """Number of the next micro-batch over all epochs."""
        return self.progress.epoch * self.schedule.batches_per_epoch + self.progress.batch


@contextmanager
def open_session(context: RunContext, resumed: dict[str, Any] | None = None) -> Iterator[Session]:
    """Reads the data set, starts the loaders, makes model, loss and optimizer; stops the loaders at the end.

    Args:
        context: settings, device and so on.
        resumed: content of the checkpoint whose model is to be built; its tensors are not loaded here.
    """
    torch.manual_seed(context.settings.seed)
    train_index, val_index = _read_data(context)
    with ExitStack() as stack:
        # The loaders' processes start before anything touches the GPU.
        train_loader = stack.enter_context(open_loader(train_loader_settings(context, train_index)))
        val_loader = None
        if val_index is not None:
            val_loader = stack.enter_context(open_loader(val_loader_settings(context, val_index, train_index)))
        model = make_model(context.settings, list(train_index.names), context.environment, resumed)
        yield _assemble(context, model, train_index, train_loader, val_loader)


def _read_data(context: RunContext) -> tuple[DatasetIndex, DatasetIndex | None]:
    settings, environment = context.settings, context.environment
    config = load_dataset_config(context.data_copy or settings.data, environment=environment)

    def build(split: str, min_items: int) -> DatasetIndex:
        index = DatasetIndex.build(
            config,
            split,
            cache_dir=environment.cache_dir,
            single_cls=settings.single_cls,
            min_items=min_items,
            workers=max(1, settings.workers or 1),
            allow_bad_labels=settings.allow_bad_labels,
        )
        if context.ranks.is_first:
            report = context.run_dir / f"data_{split}.txt"
            with optional_file(report):
                index.summary.write_report(report)
        return index

    train = build("train", settings.min_items)
    return train, build("val", 0) if context.ranks.is_first else None


def _assemble(
    context: RunContext,
    model: DetectionModel,
    train_index: DatasetIndex,
    train_loader: Loader,
    val_loader: Loader | None,
) -> Session:
    settings, recipe, precision = context.settings, context.recipe, context.precision
    freeze_layers(model, settings.freeze)
    model = place_model(model, precision, context.ranks, sync_bn=settings.sync_bn)
    copy_from_first(list(model.state_dict().values()), context.ranks)
    groups = group_parameters(model)
    # Moves the parameters, so it comes before everything that holds on to them.
    flat = FlatParameters([[parameter for _, parameter in group if parameter.requires_grad] for group in groups])
    optimizer = build_optimizer(
        groups,
        settings.optimizer,
        lr=recipe.lr0,
        momentum=recipe.momentum,
        weight_decay=scaled_weight_decay(recipe.weight_decay, context.pictures_per_step),
        fused=True,
    )
    loss = DetectionLoss(model, LossSettings.from_recipe(recipe, context.environment))
    ema = ModelEma(model)
    schedule = Schedule(
        epochs=settings.epochs,
        batches_per_epoch=train_loader.batches_per_epoch,
        recipe=recipe,
        shape=lr_shape(settings),
        accumulation_target=context.accumulation_target,
        momentum_warms_up=settings.optimizer == "SGD",
    )
    return Session(
        context=context,
        model=model,
        loss=loss,
        groups=groups,
        optimizer=optimizer,
        ema=ema,
        step=TrainStep(
            model,
            loss,
            optimizer,
            ema,
            precision,
            flat,
            context.ranks,
            recompute=settings.checkpoint_activations,
        ),
        schedule=schedule,
        stopper=EarlyStop(settings.patience),
        progress=Progress(),
        train_loader=train_loader,
        val_loader=val_loader,
        train_index=train_index,
    )
