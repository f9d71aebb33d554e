"""Targets drawn at random, for steps that are run to be measured."""

import torch
from torch import Tensor

NEAREST_CENTRE, FARTHEST_CENTRE = 0.3, 0.7
SHORTEST_SIDE, LONGEST_SIDE = 0.05, 0.45
"""Shares of a picture: with these a box lies inside of it."""


def random_rows(pictures: int, boxes: int, classes: int, generator: torch.Generator | None = None) -> Tensor:
    """Returns (pictures x boxes, 6) float32 rows picture, class, cx, cy, w, h, normalised, on the CPU."""
    count = pictures * boxes
    picture = torch.arange(count)[:, None] // boxes
    label = torch.randint(0, classes, (count, 1), generator=generator)
    centre = torch.empty(count, 2).uniform_(NEAREST_CENTRE, FARTHEST_CENTRE, generator=generator)
    size = torch.empty(count, 2).uniform_(SHORTEST_SIDE, LONGEST_SIDE, generator=generator)
    return torch.cat((picture, label, centre, size), 1)
