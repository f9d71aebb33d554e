"""What is decided while a step is made."""

from yolov9.engine import step_setup


def test_a_short_run_does_not_wait_for_a_search_that_a_long_one_gains_by() -> None:
    assert not step_setup.search_pays(85 * 13)
    assert step_setup.search_pays(300 * 1848)
