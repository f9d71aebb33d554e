"""A small problem for the loss: maps and targets of a batch."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from yolov9.loss import DetectionLoss, LossSettings


@dataclass
class Problem:
    """Maps of two heads for pictures of 96 x 128 px, and targets with crowded and empty pictures."""

    classes: int
    aux: list
    main: list
    rows: torch.Tensor
    pictures: int = 3

    def loss(self, **settings):
        model = SimpleNamespace(nc=self.classes, reg_max=16, stride=torch.tensor([8.0, 16.0, 32.0]))
        return DetectionLoss(model, LossSettings(**settings))

    def maps(self, dtype=torch.float32):
        """Fresh leaves: (aux maps, main maps)."""
        return tuple([level.to(dtype).requires_grad_() for level in head] for head in (self.aux, self.main))


@pytest.fixture
def problem():
    generator = torch.Generator().manual_seed(5)
    classes, pictures = 5, 3
    heads = [
        [torch.randn(pictures, 64 + classes, 96 // s, 128 // s, generator=generator) for s in (8, 16, 32)]
        for _ in range(2)
    ]
    size = torch.rand(30, 2, generator=generator) * 0.4 + 0.05
    centre = torch.rand(30, 2, generator=generator) * 0.8 + 0.1
    image = torch.randint(0, 2, (30, 1), generator=generator)  # the last picture has no target
    label = torch.randint(0, classes, (30, 1), generator=generator)
    return Problem(classes, *heads, torch.cat((image, label, centre, size), 1))
