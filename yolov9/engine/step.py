"""One optimisation step: gradients of one or several batches, then one update of weights and average.

Nothing here waits for the device: losses and faults are counted in tensors and read once in a while. On a GPU in half
precision forward, loss and backward of each batch shape are one CUDA graph.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from yolov9.engine.batch_gradient import BatchGradient, Resize
from yolov9.engine.distributed import Ranks, gather_on_first, sum_gradients
from yolov9.engine.ema import ModelEma
from yolov9.engine.flat import FlatParameters
from yolov9.engine.loss_meter import LossMeter
from yolov9.engine.micro_batches import MicroBatches, Undo
from yolov9.engine.optimizer import can_skip_on_device, prepare_state
from yolov9.engine.precision import Precision
from yolov9.engine.split_policy import SplitPolicy
from yolov9.loss import DetectionLoss

CLIP_NORM = 10.0
"""Largest norm of the gradient of all parameters together; fixed in the published training loop."""


@dataclass(frozen=True)
class Faults:
    """Updates that were left out because a gradient was not finite."""

    total: int
    """Since the start of this process."""
    in_a_row: int
    """Without a good update in between, up to now."""


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
        micro_batch: pictures that go through the network at a time; None: whole batches.
        search: let cuDNN try all its kernels for the first batch shape.
        plain: run operation by operation, without CUDA graphs and kernels of our own.
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
        micro_batch: int | None = None,
        search: bool = True,
        plain: bool = False,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.ema = ema
        self.ranks = ranks or Ranks()
        device = precision.device
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision.needs_scaler)
        self.meter = LossMeter(device)
        self.flat = flat
        joint = any(isinstance(module, nn.SyncBatchNorm) for module in model.modules())
        fast = device.type == "cuda" and precision.dtype != torch.float32 and not plain
        if fast:
            flat.make_compute_copies(precision.dtype)
        self.gradient = BatchGradient(
            model,
            loss,
            self.scaler,
            precision,
            self.meter,
            recompute=recompute,
            capture=fast and not joint,
            search=search,
            plain=plain,
        )
        undo = Undo(flat.gradients, [*model.buffers(), *self.meter.tensors])
        self.micro_batches = MicroBatches(self.gradient, undo, SplitPolicy(micro_batch), device, may_split=not joint)
        self._pending = True
        """Gradients may be there that no update has used: those of a resumed run are, until the first update."""
        self._faults = torch.zeros(2, dtype=torch.int64, device=device)
        self._skips_on_device = can_skip_on_device(optimizer)
        prepare_state(optimizer, flat)

    def add_gradient(self, images: Tensor, targets: Tensor, resize: Resize | None = None) -> Tensor:
        """Forward, loss and backward of one batch; gradients are added to those already there.

        A batch that does not fit into the memory is done again in smaller parts, whose gradients add up to the same.

        Args:
            images: (B, 3, H, W), float, 0 to 1.
            targets: (B, M, 5) class, cx, cy, w, h, normalised, padded with class -1; or (n, 6) rows.
            resize: applied to pictures right before they go through the network.

        Returns:
            Total loss of the batch, on the device; the next call may overwrite it.

        Raises:
            UserError: not even one picture fits.
        """
        total = self.micro_batches.add(images, targets, resize, pending=self._pending)
        self._pending = True
        return total

    def update(self) -> Tensor:
        """Clips the summed gradient, moves the weights and the average, and clears the gradient.

        An update whose gradient is not finite leaves weights and momenta as they are.

        Returns:
            Norm of the gradient before clipping, on the device.
        """
        room = self.micro_batches.with_room
        sum_gradients(self.flat.gradients, self.ranks)
        room(lambda: self.scaler.unscale_(self.optimizer), "an update")
        norm = room(lambda: self.flat.clip_gradients(CLIP_NORM), "an update")
        bad, found_inf = room(lambda: self._count(norm), "an update")
        if self.scaler.is_enabled():
            room(lambda: self.scaler.step(self.optimizer), "an update")
            self.scaler.update()
        elif self._skips_on_device:
            # The fused kernels read this flag on the device, as they do for a gradient scaler.
            self.optimizer.found_inf = found_inf  # type: ignore[attr-defined]  # not declared by Optimizer
            room(self.optimizer.step, "an update")
        elif not bool(bad):
            room(self.optimizer.step, "an update")
        self.flat.zero_gradients()
        self._pending = False
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

    def _count(self, norm: Tensor) -> tuple[Tensor, Tensor]:
        """Counts an update whose norm is not finite; says whether it is one, as a truth value and as a float."""
        bad = ~torch.isfinite(norm)
        one = bad.long()
        faults = torch.stack((self._faults[0] + one, (self._faults[1] + one) * one))
        found_inf = bad.float()
        self._faults.copy_(faults)  # Nothing above changes anything, so that it can be done again when memory runs out.
        return bad, found_inf
