"""Gradients of batches in as many parts as the memory needs: what does not fit is done again in smaller parts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from yolov9.engine.batch_gradient import BatchGradient, Resize
from yolov9.engine.out_of_memory import MOST_TRIES_OF_ONE, free_caches, is_out_of_memory, no_room
from yolov9.engine.split_policy import SplitPolicy
from yolov9.errors import UserError, first_line
from yolov9.logs import LOG

Result = TypeVar("Result")
TOO_FEW_VALUES = "more than 1 value per channel"
"""Words of PyTorch's batch normalisation."""


@dataclass(frozen=True)
class MemoryEvent:
    """Another micro-batch than before."""

    before: int
    after: int
    reason: str


class Undo:
    """What a failed attempt may have changed, to be put back before the next one.

    Args:
        gradients: all gradients in one vector.
        others: running statistics and loss sums.
    """

    def __init__(self, gradients: Tensor, others: Iterable[Tensor]) -> None:
        self._gradients = gradients
        # One type at a time: copies of mixed lists are made one by one.
        by_type: dict[torch.dtype, list[Tensor]] = {}
        for tensor in others:
            by_type.setdefault(tensor.dtype, []).append(tensor)
        self._others = list(by_type.values())
        self._kept: list[list[Tensor]] = []
        self._kept_gradients: Tensor | None = None

    @torch.no_grad()
    def remember(self, *, pending: bool) -> None:
        """Copies the state.

        Args:
            pending: gradients of earlier batches wait for their update; otherwise they are zeros.
        """
        if not self._kept:
            self._kept = [[torch.empty_like(tensor) for tensor in group] for group in self._others]
        for kept, others in zip(self._kept, self._others, strict=True):
            torch._foreach_copy_(kept, others)
        self._kept_gradients = None
        if pending:
            self._kept_gradients = self._gradients.clone()

    @torch.no_grad()
    def restore(self) -> None:
        """Puts the state back."""
        for kept, others in zip(self._kept, self._others, strict=True):
            torch._foreach_copy_(others, kept)
        if self._kept_gradients is None:
            self._gradients.zero_()
        else:
            self._gradients.copy_(self._kept_gradients)

    def drop_gradients(self) -> None:
        """Gives the memory of the copied gradients back."""
        self._kept_gradients = None


class MicroBatches:
    """Runs batches in parts and does those again that ran out of memory.

    Args:
        gradient: computes.
        undo: knows what a failed attempt may have changed.
        policy: decides the size of the parts.
        device: of the model.
        may_split: False where other processes take part in every forward pass, so that one cannot repeat it alone.
    """

    def __init__(
        self, gradient: BatchGradient, undo: Undo, policy: SplitPolicy, device: torch.device, *, may_split: bool = True
    ) -> None:
        self.policy = policy
        self.on_change: Callable[[MemoryEvent], None] = log_event
        """Called after each change of the micro-batch."""
        self._gradient, self._undo = gradient, undo
        self._device, self._may_split = device, may_split

    def add(self, images: Tensor, targets: Tensor, resize: Resize | None = None, *, pending: bool) -> Tensor:
        """Adds the gradient of a batch; see `BatchGradient.add`.

        Args:
            images: (B, 3, H, W), float, 0 to 1.
            targets: table (B, M, 5) or rows (n, 6).
            resize: applied to pictures right before they go through the network.
            pending: gradients of earlier batches are there and must stay.

        Raises:
            UserError: not even one picture fits.
        """
        failures_of_one = 0
        while True:
            size = self.policy.size(len(images))
            total = self._attempt(images, targets, size, resize, pending=pending)
            if isinstance(total, Tensor):
                return total
            failures_of_one += size == 1
            self._recover(size, total, last=failures_of_one >= MOST_TRIES_OF_ONE)

    def with_room(self, work: Callable[[], Result], what: str) -> Result:
        """Does something that changes nothing when it fails; a second time with all caches freed when it has to.

        Raises:
            UserError: it does not fit even then.
        """
        for last in (False, True):
            try:
                return work()
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                words = first_line(error)
            if last:
                break
            LOG.warning("out of memory in %s (%s): caches are freed for it", what, words)
            self.make_room()
        raise no_room(words, self._device, what)

    def make_room(self) -> None:
        """Gives all memory back that is not needed right now; captured graphs are made anew later."""
        self._gradient.forget()
        free_caches(self._device)

    def epoch_done(self) -> None:
        """Counts an epoch; after a quiet time a larger micro-batch is tried again."""
        before = self.policy.limit
        after = self.policy.epoch_done()
        if before is not None and after is not None:
            self.on_change(MemoryEvent(before, after, "memory has sufficed for a while"))

    def _attempt(
        self, images: Tensor, targets: Tensor, size: int, resize: Resize | None, *, pending: bool
    ) -> Tensor | str:
        """Returns the total loss, or the words of a failure: the error itself would keep the failed step's memory."""
        saved = False
        try:
            if resize is not None or not self._gradient.replays(images, targets, size):
                self._undo.remember(pending=pending)
                saved = True
            total = self._gradient.add(images, targets, size, resize)
            self._undo.drop_gradients()
            return total
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            words = first_line(error)
        except ValueError as error:
            if TOO_FEW_VALUES not in str(error):
                raise
            raise UserError(
                found=f"{min(size, len(images))} picture at a time, so small that its coarsest map is a single cell",
                needed="more than one value of each channel: batch normalisation divides by their spread",
                remedy="a larger --img (with --multi-scale its half counts)",
            ) from None
        if saved:
            self._undo.restore()
        return words

    def _recover(self, size: int, words: str, *, last: bool) -> None:
        had_graphs = self._gradient.forget()
        free_caches(self._device)
        if not self._may_split:
            raise no_room(words, self._device, f"a batch of {size} with --sync-bn over several GPUs")
        if last:
            raise no_room(words, self._device, "one picture")
        if had_graphs or size == 1:
            LOG.warning("out of memory (%s): all caches are freed and the same pictures are done again", words)
            return
        self.on_change(MemoryEvent(size, self.policy.failed(size), f"out of memory ({words})"))


def log_event(event: MemoryEvent) -> None:
    """Says how many pictures go through the network at a time from now on."""
    how = "the same pictures are done again in" if event.after < event.before else "going on with"
    LOG.warning("%s with %d pictures at a time: %s parts of %d", event.reason, event.before, how, event.after)
