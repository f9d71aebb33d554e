"""Everything that an optimisation step consists of, made from a model."""

from dataclasses import dataclass

from torch.optim import Optimizer

from yolov9.engine.distributed import Ranks, copy_from_first
from yolov9.engine.ema import ModelEma
from yolov9.engine.flat import FlatParameters
from yolov9.engine.gpu_memory import save_allocator_memory
from yolov9.engine.model_setup import place_model
from yolov9.engine.optimizer import ParameterGroups, build_optimizer, group_parameters
from yolov9.engine.run_context import RunContext
from yolov9.engine.schedule import scaled_weight_decay
from yolov9.engine.step import TrainStep
from yolov9.loss import DetectionLoss, LossSettings
from yolov9.model import DetectionModel

SEARCH_PAYS_FROM_BATCHES = 5000
"""cuDNN's search takes 7 to 10 s at the start, and saves 3 to 6 % of each batch (docs/measurements.md): 1 to 4 ms."""


@dataclass(kw_only=True)
class StepParts:
    """A model on its device with what trains it."""

    model: DetectionModel
    loss: DetectionLoss
    groups: ParameterGroups
    optimizer: Optimizer
    ema: ModelEma[DetectionModel]
    step: TrainStep


def make_step(
    context: RunContext, model: DetectionModel, ranks: Ranks, *, micro_batch: int | None = None, search: bool = True
) -> StepParts:
    """Moves a model to the device of a run and makes its loss, optimizer, average and step.

    Args:
        context: settings, recipe, device.
        model: on the CPU, with frozen layers marked.
        ranks: processes that train it together.
        micro_batch: pictures that go through the network at a time; None: whole batches.
        search: let cuDNN try all its kernels for the first batch shape.
    """
    settings, recipe, precision = context.settings, context.recipe, context.precision
    if settings.checkpoint_activations and precision.device.type == "cuda":
        save_allocator_memory()
    model = place_model(model, precision, ranks, sync_bn=settings.sync_bn)
    copy_from_first(list(model.state_dict().values()), ranks)
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
    ema = ModelEma(model, flat=flat)
    step = TrainStep(
        model,
        loss,
        optimizer,
        ema,
        precision,
        flat,
        ranks,
        recompute=settings.checkpoint_activations,
        micro_batch=micro_batch,
        search=search,
        plain=settings.plain_step,
    )
    return StepParts(model=model, loss=loss, groups=groups, optimizer=optimizer, ema=ema, step=step)


def search_pays(batches: int) -> bool:
    """Tells whether a run of so many batches is shorter when cuDNN first tries all its kernels."""
    return batches >= SEARCH_PAYS_FROM_BATCHES
