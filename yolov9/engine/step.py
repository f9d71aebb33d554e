"""One optimisation step: gradients of one or several micro-batches, then one update of weights and average.

Nothing here waits for the device: losses and faults are counted in tensors and read once in a while. On a GPU in half
precision forward, loss and backward of each batch shape are one CUDA graph.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from yolov9.engine.captured import Gradient, GraphCache
from yolov9.engine.distributed import Ranks, gather_on_first, sum_gradients
from yolov9.engine.ema import ModelEma
from yolov9.engine.flat import FlatParameters
from yolov9.engine.optimizer import can_skip_on_device, prepare_state
from yolov9.engine.precision import Precision
from yolov9.loss import DetectionLoss
from yolov9.ops.recompute import recompute_activations

CLIP_NORM = 10.0
"""Largest norm of the gradient of all parameters together; fixed in the published training loop."""
LOSS_NAMES = ("box", "cls", "dfl")


@dataclass(frozen=True)
class Faults:
    """Updates that were left out because a gradient was not finite."""

    total: int
    """Since the start of this process."""
    in_a_row: int
    """Without a good update in between, up to now."""


class LossMeter:
    """Sums of the three loss terms over micro-batches, kept on the device; terms that are not finite are left out."""

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(len(LOSS_NAMES) + 1, dtype=torch.float64, device=device)

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


class TrainStep:
    """The step, for any device.

    Args:
        model: model in training mode.
        loss: its loss; the total is summed over the pictures, not averaged.
        optimizer: with its three groups.
        ema: average that follows the model; None on ranks that keep none.
        precision: number format of forward pass and loss.
        flat: the memory of the trained parameters and their gradients.
        ranks: this process among the others.
        recompute: rebuild cheap activations in backward instead of keeping them.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: DetectionLoss,
        optimizer: Optimizer,
        ema: ModelEma[Any] | None,
        precision: Precision,
        flat: FlatParameters,
        ranks: Ranks | None = None,
        *,
        recompute: bool = False,
    ) -> None:
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self.ema = ema
        self.precision = precision
        self.ranks = ranks or Ranks()
        self.scaler = torch.amp.GradScaler(precision.device.type, enabled=precision.needs_scaler)
        self.meter = LossMeter(precision.device)
        self.flat = flat
        self._recompute = recompute
        self._searched: torch.Size | None = None
        self._run: Gradient = self._add_gradient
        if precision.device.type == "cuda" and precision.dtype != torch.float32:
            flat.make_compute_copies(precision.dtype)
            if not any(isinstance(module, nn.SyncBatchNorm) for module in model.modules()):
                self._run = GraphCache(self._add_gradient)
        self._faults = torch.zeros(2, dtype=torch.int64, device=precision.device)
        self._skips_on_device = can_skip_on_device(optimizer)
        prepare_state(optimizer)

    def add_gradient(self, images: Tensor, targets: Tensor) -> Tensor:
        """Forward, loss and backward of one micro-batch; gradients are added to those already there.

        Args:
            images: (B, 3, H, W), float, 0 to 1.
            targets: (B, M, 5) class, cx, cy, w, h, normalised, padded with class -1; or (n, 6) rows.

        Returns:
            Total loss of the micro-batch, on the device; the next call may overwrite it.
        """
        return self._run(images, targets)

    def _add_gradient(self, images: Tensor, targets: Tensor) -> Tensor:
        # cuDNN tries out all its kernels for one shape, that of the first batch: it takes seconds, which short last
        # batches, rectangular batches and multi-scale would pay again and again.
        if self._searched is None:
            self._searched = images.shape
        # `enabled` has to be said: left out, this context switches cuDNN off, and a step takes five times as long.
        search = torch.backends.cudnn.flags(enabled=True, benchmark=images.shape == self._searched, allow_tf32=True)
        with search:
            with self.precision.autocast(), recompute_activations() if self._recompute else nullcontext():
                total, items = self.loss(self.model(images), targets)
            self.scaler.scale(total).backward()  # type: ignore[no-untyped-call]  # annotated only in part
        self.meter.add(items)
        detached: Tensor = total.detach()
        return detached

    def update(self) -> Tensor:
        """Clips the summed gradient, moves the weights and the average, and clears the gradient.

        An update whose gradient is not finite leaves weights and momenta as they are.

        Returns:
            Norm of the gradient before clipping, on the device.
        """
        sum_gradients(self.flat.gradients, self.ranks)
        self.scaler.unscale_(self.optimizer)
        norm = self.flat.clip_gradients(CLIP_NORM)
        bad = ~torch.isfinite(norm)
        self._count(bad)
        if self.scaler.is_enabled():
            self.scaler.step(self.optimizer)
            self.scaler.update()
        elif self._skips_on_device:
            # The fused kernels read this flag on the device, as they do for a gradient scaler.
            self.optimizer.found_inf = bad.float()  # type: ignore[attr-defined]  # not declared by Optimizer
            self.optimizer.step()
        elif not bool(bad):
            self.optimizer.step()
        self.flat.zero_gradients()
        self.flat.refresh_compute_copies()
        if self.ema is not None:
            self.ema.update()
        return norm

    def gather(self) -> None:
        """Moves gradients that no update has used yet, and loss sums, to the first rank, which saves them for all.

        The gradient of the next update is a sum over the ranks, so it stays the same. All ranks call this together.
        """
        gather_on_first(self.flat.gradients, self.ranks)
        self.meter.gather(self.ranks)

    def faults(self) -> Faults:
        """Returns how many updates were left out; waits for the device."""
        total, in_a_row = self._faults.tolist()
        return Faults(total, in_a_row)

    def _count(self, bad: Tensor) -> None:
        one = bad.long()
        self._faults[0] += one
        self._faults[1] = (self._faults[1] + one) * one
