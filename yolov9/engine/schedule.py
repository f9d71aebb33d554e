"""Learning rates, momentum and accumulation of every iteration, as pure functions of the iteration's number.

An iteration is one forward pass over a micro-batch of every rank. Nothing here keeps state, so that a resumed run gets
the values of an uninterrupted one by construction. The rules are those of the published training loop.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from yolov9.config.recipe import Recipe
from yolov9.config.settings import NOMINAL_BATCH, TrainSettings
from yolov9.config.stages import Growth

LrShape = Literal["linear", "cosine", "flat-cosine", "fixed"]

MIN_WARMUP_ITERATIONS = 100
"""Warm-up is never shorter than this, however few iterations an epoch has."""


@dataclass(frozen=True, kw_only=True)
class StepValues:
    """What the optimizer is set to while the loss of one iteration is computed."""

    lr_bias: float
    """Learning rate of the biases."""
    lr_weight: float
    """Learning rate of the weights with decay."""
    lr_norm: float
    """Learning rate of the normalisation weights."""
    momentum: float
    """SGD momentum; Adam and LION keep their first beta."""
    accumulate: int
    """Iterations between two optimizer steps."""

    @property
    def learning_rates(self) -> tuple[float, float, float]:
        """Learning rates in the order of the parameter groups."""
        return self.lr_bias, self.lr_weight, self.lr_norm


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Everything that the values of an iteration depend on."""

    epochs: int
    """Epochs of the whole run."""
    batches_per_epoch: int
    """Iterations of one epoch."""
    recipe: Recipe
    """Learning rates, momentum and warm-up."""
    shape: LrShape = "linear"
    """How the learning rate falls after warm-up."""
    accumulation_target: float = 1.0
    """Optimisation batch divided by the pictures of one iteration; not rounded, warm-up interpolates to it."""
    growth: Growth | None = None
    """Batches of a step that grow with the epochs, in place of `accumulation_target` and its warm-up."""
    momentum_warms_up: bool = True
    """True for SGD."""

    @property
    def warmup_iterations(self) -> int:
        """Number of the last iteration that belongs to warm-up."""
        return max(round(self.recipe.warmup_epochs * self.batches_per_epoch), MIN_WARMUP_ITERATIONS)

    def at(self, iteration: int) -> StepValues:
        """Returns the values of an iteration, counted from 0 over all epochs."""
        recipe, warmup = self.recipe, self.warmup_iterations
        epoch = iteration // self.batches_per_epoch
        target = recipe.lr0 * self.factor(self._factor_epoch(epoch))
        if iteration > warmup:
            momentum = recipe.momentum
            return StepValues(
                lr_bias=target,
                lr_weight=target,
                lr_norm=target,
                momentum=momentum,
                accumulate=self._accumulate(epoch, 1.0),
            )
        share = iteration / warmup
        start_momentum = recipe.warmup_momentum if self.momentum_warms_up else recipe.momentum
        return StepValues(
            lr_bias=_between(recipe.warmup_bias_lr, target, share),
            lr_weight=_between(0.0, target, share),
            lr_norm=_between(0.0, target, share),
            momentum=_between(start_momentum, recipe.momentum, share),
            accumulate=self._accumulate(epoch, share),
        )

    def _accumulate(self, epoch: int, warmed_up: float) -> int:
        if self.growth is not None:
            return rounded_accumulation(self.growth.at(epoch))
        return rounded_accumulation(_between(1.0, self.accumulation_target, warmed_up))

    def factor(self, epoch: int) -> float:
        """Share of `lr0` that the learning rate falls to at an epoch, 0 to `epochs`."""
        end = self.recipe.lrf
        if self.shape == "fixed":
            return 1.0
        if self.shape == "linear":
            return (1 - epoch / self.epochs) * (1 - end) + end
        flat = self.epochs // 2 if self.shape == "flat-cosine" else 0
        if epoch < flat:
            return 1.0
        return 1 + (end - 1) * (1 - math.cos((epoch - flat) * math.pi / (self.epochs - flat))) / 2

    def _factor_epoch(self, epoch: int) -> int:
        """Epoch whose factor is used: the epoch itself as long as it began within warm-up, later the one before."""
        began_in_warmup = epoch * self.batches_per_epoch <= self.warmup_iterations
        return epoch if began_in_warmup else epoch - 1


def optimizer_step_due(iteration: int, last_step: int, accumulate: int) -> bool:
    """Tells whether the optimizer steps after an iteration.

    Args:
        iteration: number of the iteration whose gradient has just been added.
        last_step: iteration of the last optimizer step, -1 before the first.
        accumulate: iterations between two steps.
    """
    return iteration - last_step >= accumulate


def rounded_accumulation(target: float) -> int:
    """Iterations per optimizer step for a wished, fractional number; at least 1, halves go to the even neighbour."""
    return max(1, round(target))


def mosaic_off_epoch(epochs: int, close_mosaic: int) -> int | None:
    """First epoch without mosaic; None when it stays on.

    `close_mosaic` longer than the run means that mosaic is off from the start.
    """
    return max(0, epochs - close_mosaic) if close_mosaic > 0 else None


def scaled_weight_decay(weight_decay: float, pictures_per_step: int) -> float:
    """Weight decay of a recipe, which is meant for 64 pictures per optimizer step, for another number of pictures."""
    return weight_decay * pictures_per_step / NOMINAL_BATCH


def scaled_recipe(recipe: Recipe, pictures_per_step: int) -> Recipe:
    """Recipe with learning rates for another number of pictures per step than its 64, by the linear rule."""
    factor = pictures_per_step / NOMINAL_BATCH
    return replace(recipe, lr0=recipe.lr0 * factor, warmup_bias_lr=recipe.warmup_bias_lr * factor)


def lr_shape(settings: TrainSettings) -> LrShape:
    """Shape that the flags ask for; with several, flat cosine wins over cosine and cosine over fixed."""
    if settings.flat_cos_lr:
        return "flat-cosine"
    if settings.cos_lr:
        return "cosine"
    return "fixed" if settings.fixed_lr else "linear"


def _between(start: float, end: float, share: float) -> float:
    return start + (end - start) * share
