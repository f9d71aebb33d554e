"""How many pictures go through the network at a time: fewer after memory ran out, more again after a quiet time."""

from dataclasses import dataclass

FIRST_WAIT_EPOCHS = 3
"""Epochs without a failure before a larger micro-batch is tried; doubled each time that such a try fails."""


@dataclass
class SplitPolicy:
    """The largest micro-batch at the moment.

    Args:
        planned: micro-batch that is aimed at; None: whole batches as they are loaded.
    """

    planned: int | None = None
    limit: int | None = None
    """Smaller than planned after memory ran out; None otherwise."""
    wait_epochs: int = FIRST_WAIT_EPOCHS
    _quiet_epochs: int = 0
    _on_trial: bool = False
    """The limit was raised and nothing has failed since."""
    _largest: int = 0

    def size(self, loaded: int) -> int:
        """Returns how many of the loaded pictures go through the network at a time."""
        self._largest = max(self._largest, loaded)
        return min(value for value in (loaded, self.planned, self.limit) if value is not None)

    def failed(self, size: int) -> int:
        """Notes that so many pictures did not fit, and returns how many are tried next.

        Raises:
            ValueError: it was one picture.
        """
        if size <= 1:
            raise ValueError("one picture cannot be split")
        if self._on_trial:
            self.wait_epochs *= 2
        self._on_trial, self._quiet_epochs = False, 0
        self.limit = -(-size // 2)
        return self.limit

    def epoch_done(self) -> int | None:
        """Counts an epoch; returns the larger micro-batch that is tried from now on, or None."""
        if self.limit is None:
            return None
        self._quiet_epochs += 1
        if self._quiet_epochs < self.wait_epochs:
            return None
        self._quiet_epochs, self._on_trial = 0, True
        most = self.planned if self.planned is not None else self._largest
        grown = min(2 * self.limit, most)
        self.limit = None if grown >= most else grown
        return grown
