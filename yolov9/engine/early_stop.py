"""Best score so far, and when to stop because it no longer rises."""

from dataclasses import dataclass


@dataclass
class EarlyStop:
    """Counts the epochs since the best score."""

    patience: int
    """Epochs without a better score until the run stops; 0: never."""
    best_score: float = 0.0
    """Highest score; the later of two equal ones counts."""
    best_epoch: int = 0
    """Epoch of the highest score."""

    def record(self, epoch: int, score: float) -> bool:
        """Takes the score of an epoch; returns whether it is the best so far (equal counts)."""
        if not score >= self.best_score:  # not a number is no score
            return False
        self.best_score, self.best_epoch = score, epoch
        return True

    def should_stop(self, epoch: int) -> bool:
        """Tells whether the run ends after this epoch."""
        return self.patience > 0 and epoch - self.best_epoch >= self.patience
