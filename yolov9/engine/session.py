"""Makes everything that a training run needs from its context."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from yolov9.config.settings import FIND, FIND_LARGEST, NOMINAL_BATCH
from yolov9.data import DatasetIndex, load_dataset_config
from yolov9.data.doubts import doubt_shared_pictures
from yolov9.data.loader import Loader, open_loader
from yolov9.engine.batch_probe import BatchChoice, choose_micro_batch
from yolov9.engine.checkpoint import ModelFacts, Progress
from yolov9.engine.distributed import least_of_ranks
from yolov9.engine.early_stop import EarlyStop
from yolov9.engine.gpu_claim import GpuClaim, claim_gpu
from yolov9.engine.kernel_check import check_kernels
from yolov9.engine.kernels_ahead import compile_kernels_ahead
from yolov9.engine.loader_setup import train_loader_settings, val_loader_settings
from yolov9.engine.model_setup import freeze_layers, make_model
from yolov9.engine.optional_file import optional_file
from yolov9.engine.painter_setup import make_painter, with_decoding_for
from yolov9.engine.plan_record import note_in_plan
from yolov9.engine.read_split import read_split
from yolov9.engine.run_context import RunContext
from yolov9.engine.sample_painter import SamplePainter
from yolov9.engine.schedule import Schedule, lr_shape, scaled_recipe
from yolov9.engine.step_setup import StepParts, make_step, search_pays
from yolov9.logs import LOG
from yolov9.model import DetectionModel


@dataclass(kw_only=True)
class Session(StepParts):
    """One run: a model with what trains it, and what feeds and steers that."""

    context: RunContext
    schedule: Schedule
    stopper: EarlyStop
    progress: Progress
    train_loader: Loader
    val_loader: Loader | None
    """None on ranks that do not validate."""
    train_index: DatasetIndex
    claim: GpuClaim
    """Held until this run has taken its memory."""
    painter: SamplePainter | None = None
    """Draws training pictures on the device; None where the loader's workers do."""
    validation_batch: int | None = None
    """Pictures that validation looks at together; None: all that are loaded."""

    @property
    def facts(self) -> ModelFacts:
        """What a checkpoint needs besides tensors."""
        return ModelFacts(self.model.graph, self.model.graph_name, list(self.model.names))

    @cached_property
    def model_state(self) -> dict[str, Tensor]:
        """The model's tensors, which stay in their places for the whole run."""
        return self.model.state_dict()

    @cached_property
    def average_state(self) -> dict[str, Tensor]:
        """The average's tensors, which stay in their places too."""
        return self.ema.model.state_dict()

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
    context = with_decoding_for(context, train_index)
    with ExitStack() as stack:
        # The loaders' processes start before anything touches the GPU.
        train_loader = stack.enter_context(open_loader(train_loader_settings(context, train_index)))
        val_loader = None
        if val_index is not None:
            val_loader = stack.enter_context(open_loader(val_loader_settings(context, val_index, train_index)))
        model = make_model(context.settings, list(train_index.names), context.environment, resumed)
        check_kernels(context.precision.device)
        compile_kernels_ahead(context, model)
        claim = stack.enter_context(claim_gpu(context.precision.device, context.environment))
        # Its memory is taken before a batch is looked for that fits into the rest.
        painter = make_painter(context, train_index.summary.found)
        session = _assemble(context, model, claim, train_index, train_loader, val_loader)
        session.painter = painter
        yield session


def _read_data(context: RunContext) -> tuple[DatasetIndex, DatasetIndex | None]:
    settings, environment = context.settings, context.environment
    config = load_dataset_config(context.data_copy or settings.data, environment=environment)

    def read(split: str, min_items: int) -> DatasetIndex:
        index = read_split(settings, config, split, environment, min_items=min_items)
        if context.ranks.is_first:
            report = context.run_dir / f"data_{split}.txt"
            with optional_file(report):
                index.summary.write_report(report)
        return index

    train = read("train", settings.min_items)
    if not context.ranks.is_first:
        return train, None
    val = read("val", 0)
    doubt_shared_pictures(train.paths(), val.paths())
    return train, val


def _assemble(
    context: RunContext,
    model: DetectionModel,
    claim: GpuClaim,
    train_index: DatasetIndex,
    train_loader: Loader,
    val_loader: Loader | None,
) -> Session:
    settings, batches = context.settings, train_loader.batches_per_epoch
    freeze_layers(model, settings.freeze)
    choice = _choose(context, model, train_index)
    micro_batch = None if settings.micro_batch in FIND else settings.micro_batch
    if choice is not None:
        # With --sync-bn ranks meet in each forward pass, so that all need as many passes.
        micro_batch = least_of_ranks(choice.found.pictures, context.ranks, context.precision.device)
    search = search_pays(settings.epochs * batches)
    parts = make_step(context, model, context.ranks, micro_batch=micro_batch, search=search)
    return Session(
        **vars(parts),
        context=context,
        schedule=_make_schedule(context, batches),
        stopper=EarlyStop(settings.patience),
        progress=Progress(),
        train_loader=train_loader,
        val_loader=val_loader,
        train_index=train_index,
        claim=claim,
        validation_batch=None if choice is None else choice.validation,
    )


def _make_schedule(context: RunContext, batches_per_epoch: int) -> Schedule:
    settings, recipe = context.settings, context.recipe
    if settings.scale_lr:
        recipe = scaled_recipe(recipe, context.pictures_per_step)
        LOG.info(
            "--scale-lr: %d pictures per step instead of %d, lr0 %g becomes %g",
            context.pictures_per_step,
            NOMINAL_BATCH,
            context.recipe.lr0,
            recipe.lr0,
        )
    return Schedule(
        epochs=settings.epochs,
        batches_per_epoch=batches_per_epoch,
        recipe=recipe,
        shape=lr_shape(settings),
        accumulation_target=context.accumulation_target,
        growth=context.growth,
        momentum_warms_up=settings.optimizer == "SGD",
    )


def _choose(context: RunContext, model: DetectionModel, index: DatasetIndex) -> BatchChoice | None:
    """Measures which micro-batch fits, where the plan leaves it open; each rank for its own GPU."""
    wanted = context.settings.micro_batch
    if context.precision.device.type != "cuda" or wanted not in FIND:
        return None
    choice = choose_micro_batch(context, model, index, largest=wanted == FIND_LARGEST)
    if context.ranks.is_first:
        note_in_plan(context.run_dir, "measured_batch", choice.as_dict())
    return choice
