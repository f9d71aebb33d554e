"""Properties of the schedule that hold for any run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yolov9.config.recipe import Recipe
from yolov9.config.settings import TrainSettings
from yolov9.config.stages import Growth
from yolov9.engine.schedule import (
    Schedule,
    lr_shape,
    mosaic_off_epoch,
    optimizer_step_due,
    rounded_accumulation,
    scaled_recipe,
)

SHAPES = st.sampled_from(["linear", "cosine", "flat-cosine", "fixed"])


def make(epochs: int, batches: int, shape: str = "linear", target: float = 4.0) -> Schedule:
    return Schedule(
        epochs=epochs,
        batches_per_epoch=batches,
        recipe=Recipe(),
        shape=shape,  # type: ignore[arg-type]  # drawn from the four names
        accumulation_target=target,
    )


@given(epochs=st.integers(1, 60), batches=st.integers(1, 500), shape=SHAPES)
def test_learning_rates_stay_between_zero_and_the_highest_start(epochs: int, batches: int, shape: str) -> None:
    schedule = make(epochs, batches, shape)
    for iteration in range(0, epochs * batches, max(1, epochs * batches // 50)):
        values = schedule.at(iteration)
        assert 0 <= values.lr_weight <= 0.01
        assert 0 < values.lr_bias <= 0.1
        assert 1 <= values.accumulate <= 4


@given(batches=st.integers(101, 400))
def test_warmup_ends_at_three_epochs(batches: int) -> None:
    schedule = make(20, batches)
    end = schedule.warmup_iterations
    assert end == 3 * batches
    assert schedule.at(end).lr_weight == pytest.approx(schedule.at(end).lr_bias)
    assert schedule.at(end - 1).lr_bias > schedule.at(end - 1).lr_weight


def test_a_recipe_without_warmup_epochs_still_warms_up_for_a_hundred_iterations() -> None:
    schedule = Schedule(epochs=5, batches_per_epoch=500, recipe=Recipe(warmup_epochs=0.0))
    assert schedule.warmup_iterations == 100
    assert schedule.at(499).lr_weight == pytest.approx(0.01)


@given(epochs=st.integers(1, 50), shape=SHAPES)
def test_every_shape_but_fixed_ends_at_the_final_factor(epochs: int, shape: str) -> None:
    end = 1.0 if shape == "fixed" else 0.01
    assert make(epochs, 1, shape).factor(epochs) == pytest.approx(end)
    assert make(epochs, 1, shape).factor(0) == pytest.approx(1.0)


@given(target=st.floats(0.05, 64), batches=st.integers(1, 200), epochs=st.integers(1, 5))
def test_the_steps_of_a_run_do_not_depend_on_where_it_is_interrupted(target: float, batches: int, epochs: int) -> None:
    schedule = make(epochs, batches, target=target)
    last = -1
    for iteration in range(epochs * batches):
        if optimizer_step_due(iteration, last, schedule.at(iteration).accumulate):
            last = iteration
    assert epochs * batches - 1 - last < max(1, rounded_accumulation(target))


@pytest.mark.parametrize(("epochs", "close", "first"), [(10, 0, None), (10, 3, 7), (10, 10, 0), (10, 15, 0), (1, 1, 0)])
def test_close_mosaic_means_the_last_epochs(epochs: int, close: int, first: int | None) -> None:
    assert mosaic_off_epoch(epochs, close) == first


@pytest.mark.parametrize(
    ("flags", "shape"),
    [
        ({}, "linear"),
        ({"cos_lr": True}, "cosine"),
        ({"flat_cos_lr": True, "cos_lr": True}, "flat-cosine"),
        ({"fixed_lr": True}, "fixed"),
    ],
)
def test_flags_choose_the_shape(flags: dict[str, bool], shape: str) -> None:
    assert lr_shape(TrainSettings(**flags)) == shape  # type: ignore[arg-type]  # all values are bool


def test_batches_of_a_step_grow_over_the_epochs() -> None:
    schedule = Schedule(epochs=10, batches_per_epoch=5, recipe=Recipe(), growth=Growth(1, 4, 4))
    assert [schedule.at(5 * epoch).accumulate for epoch in range(10)] == [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]


def test_scaled_learning_rates_follow_the_pictures_of_a_step() -> None:
    recipe = Recipe()
    scaled = scaled_recipe(recipe, 128)
    assert (scaled.lr0, scaled.warmup_bias_lr) == (2 * recipe.lr0, 2 * recipe.warmup_bias_lr)
    assert scaled.weight_decay == recipe.weight_decay
