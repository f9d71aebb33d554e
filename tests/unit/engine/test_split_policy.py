"""How the micro-batch shrinks and grows."""

import pytest

from yolov9.engine.split_policy import FIRST_WAIT_EPOCHS, SplitPolicy


def epochs_until_growth(policy: SplitPolicy) -> int:
    for epoch in range(1, 1000):
        if policy.epoch_done() is not None:
            return epoch
    raise AssertionError("never grows")


def test_whole_batches_go_through_until_memory_runs_out() -> None:
    policy = SplitPolicy()
    assert (policy.size(64), policy.epoch_done()) == (64, None)
    assert policy.failed(64) == 32
    assert policy.size(64) == 32
    assert policy.size(10) == 10


def test_a_planned_micro_batch_is_never_exceeded() -> None:
    policy = SplitPolicy(24)
    assert policy.size(64) == 24
    policy.failed(24)
    assert [policy.size(64), epochs_until_growth(policy), policy.size(64)] == [12, FIRST_WAIT_EPOCHS, 24]


def test_one_picture_cannot_be_split() -> None:
    with pytest.raises(ValueError, match="one picture"):
        SplitPolicy().failed(1)


def test_it_grows_step_by_step_after_quiet_epochs() -> None:
    policy = SplitPolicy()
    policy.size(64)
    policy.failed(64)
    policy.failed(32)
    assert epochs_until_growth(policy) == FIRST_WAIT_EPOCHS
    assert policy.size(64) == 32
    assert epochs_until_growth(policy) == FIRST_WAIT_EPOCHS
    assert policy.size(64) == 64
    assert policy.epoch_done() is None


def test_each_failed_try_doubles_the_wait() -> None:
    policy = SplitPolicy()
    policy.size(64)
    policy.failed(64)
    waits = []
    for _ in range(4):
        waits.append(epochs_until_growth(policy))
        policy.failed(64)
    assert waits == [FIRST_WAIT_EPOCHS * factor for factor in (1, 2, 4, 8)]
