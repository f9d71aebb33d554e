"""Several processes that train one model: who is who, sums of gradients, and agreement on one decision."""

import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from yolov9.config.environment import Environment

COLLECTIVE_TIMEOUT = datetime.timedelta(minutes=30)
"""How long a rank waits for the others, for instance while rank 0 validates."""


@dataclass(frozen=True)
class Ranks:
    """This process among the trainer processes."""

    rank: int = 0
    local_rank: int = 0
    world: int = 1

    @property
    def is_first(self) -> bool:
        """True for the one that validates, logs and writes files."""
        return self.rank == 0


@contextmanager
def process_group(environment: Environment, device: torch.device) -> Iterator[Ranks]:
    """Joins the other ranks, and leaves them at the end.

    Args:
        environment: ranks as entrypoint.ranks or torchrun number them; one process needs no group.
        device: decides between NCCL and gloo.
    """
    ranks = Ranks(environment.rank, environment.local_rank, environment.world_size)
    if ranks.world == 1:
        yield ranks
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    meeting_place = environment.rendezvous_file
    dist.init_process_group(
        backend,
        init_method="env://" if meeting_place is None else f"file://{meeting_place}",
        timeout=COLLECTIVE_TIMEOUT,
        rank=ranks.rank,
        world_size=ranks.world,
    )
    yield ranks
    # Not after an error: ranks that do not know of it would be waited for.
    dist.destroy_process_group()


def sum_gradients(gradients: Tensor, ranks: Ranks) -> None:
    """Replaces the gradients by their sum over all ranks; the loss is a sum, so nothing is averaged."""
    if ranks.world > 1:
        dist.all_reduce(gradients)


def gather_on_first(values: Tensor, ranks: Ranks) -> None:
    """Puts the sum over all ranks onto rank 0 and zeros onto the others."""
    if ranks.world > 1:
        dist.all_reduce(values)
        if not ranks.is_first:
            values.zero_()


def copy_from_first(tensors: Sequence[Tensor], ranks: Ranks) -> None:
    """Gives every rank the values of rank 0."""
    if ranks.world > 1:
        for tensor in tensors:
            dist.broadcast(tensor, src=0)


def any_rank(flag: bool, ranks: Ranks, device: torch.device) -> bool:
    """Tells whether the flag is set on any rank; with several ranks all of them must call it together."""
    if ranks.world == 1:
        return flag
    value = torch.tensor(int(flag), device=device)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return bool(value.item())


def least_of_ranks(number: int, ranks: Ranks, device: torch.device) -> int:
    """Returns the smallest of all ranks' numbers; with several ranks all of them must call it together."""
    if ranks.world == 1:
        return number
    value = torch.tensor(number, device=device)
    dist.all_reduce(value, op=dist.ReduceOp.MIN)
    return int(value.item())
