"""Losses of an epoch, summed where they are computed."""

import torch
from torch import Tensor

from yolov9.engine.distributed import Ranks, gather_on_first

LOSS_NAMES = ("box", "cls", "dfl")


class LossMeter:
    """Sums of the three loss terms over micro-batches, kept on the device; terms that are not finite are left out."""

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(len(LOSS_NAMES) + 1, dtype=torch.float64, device=device)

    @property
    def tensors(self) -> list[Tensor]:
        """What the meter keeps, on the device."""
        return [self._sums]

    def add(self, items: Tensor) -> None:
        """Adds box, class and distribution terms (float, shape 3), each per picture."""
        row = torch.cat((items.detach().double(), items.new_ones(1).double()))
        self._sums += torch.where(torch.isfinite(row).all(), row, 0.0)

    def state(self) -> list[float]:
        """Returns the three sums and the number of micro-batches; waits for the device."""
        return [float(value) for value in self._sums.tolist()]

    def load(self, state: list[float]) -> None:
        """Goes on from sums that `state` returned."""
        self._sums.copy_(torch.tensor(state, dtype=torch.float64))

    def means(self) -> tuple[float, float, float]:
        """Returns the mean of each term; zeros when nothing was added. Waits for the device."""
        box, cls, dfl, count = self.state()
        return box / max(count, 1), cls / max(count, 1), dfl / max(count, 1)

    def gather(self, ranks: Ranks) -> None:
        """Moves the sums of all ranks to the first one."""
        gather_on_first(self._sums, ranks)

    def reset(self) -> None:
        """Starts a new sum."""
        self._sums.zero_()
