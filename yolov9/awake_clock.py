"""A clock that stands still while the process does: paused with its container, suspended by a batch system, stopped."""

import time

MOST_BETWEEN_READINGS_S = 1.0
"""Whoever asks more often than this and finds more time gone did not run in between."""


class AwakeClock:
    """Seconds that this process has been running for, if it is asked at least every `MOST_BETWEEN_READINGS_S`."""

    def __init__(self) -> None:
        self._before = time.monotonic()
        self._awake_s = 0.0

    def now(self) -> float:
        """Returns the time; a pause counts as `MOST_BETWEEN_READINGS_S` at most."""
        moment = time.monotonic()
        self._awake_s += min(moment - self._before, MOST_BETWEEN_READINGS_S)
        self._before = moment
        return self._awake_s
