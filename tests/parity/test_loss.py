"""parity/loss: terms, total, gradients and assignments of the single and the dual loss."""

import json
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import yolov9.loss.detection as detection
from yolov9.config.environment import read_environment
from yolov9.config.recipe import recipe_from_dict
from yolov9.loss import DetectionLoss, LossSettings, pack_targets

KINDS = ("random", "none", "edges", "crowded", "nc1", "nc80", "hyp", "env")
CASES = [f"{head}-{kind}" for head in ("single", "dual") for kind in KINDS]
ROLES = {"single": ("main",), "dual": ("aux", "main")}


@dataclass
class Case:
    facts: dict
    arrays: dict
    raw: dict

    @property
    def roles(self):
        return ROLES[self.facts["head"]]

    def loss(self, settings=None):
        """Total and terms; the maps' gradients start at None."""
        for levels in self.raw.values():
            for level in levels:
                level.grad = None
        model = SimpleNamespace(nc=self.facts["nc"], reg_max=16, stride=torch.tensor([8.0, 16.0, 32.0]))
        raw = self.raw["main"] if self.roles == ("main",) else (self.raw["aux"], self.raw["main"])
        table = pack_targets(self.arrays["targets"], self.facts["batch"])
        return DetectionLoss(model, settings or self.settings())(raw, table)

    def settings(self, **changes):
        recipe = recipe_from_dict({**self.facts["hyp_changes"], **changes}, "fixture")
        environment = read_environment({name: str(value) for name, value in self.facts["env"].items()})
        return LossSettings.from_recipe(recipe, environment)


def _load(parity_dir, name):
    facts = json.loads((parity_dir / "loss" / "index.json").read_text())
    assert set(facts) == set(CASES)
    with np.load(parity_dir / "loss" / f"{name}.npz") as file:
        arrays = {key: file[key] for key in file}
    raw = {
        role: [torch.from_numpy(arrays[f"raw_{role}_{i}"].astype(np.float32)).requires_grad_() for i in range(3)]
        for role in ROLES[facts[name]["head"]]
    }
    return Case(facts[name], arrays, raw)


@pytest.fixture(params=CASES)
def case(request, parity_dir):
    return _load(parity_dir, request.param)


def test_terms_and_total(case):
    total, items = case.loss()
    np.testing.assert_allclose(items.numpy(), case.arrays["loss_items_box_cls_dfl"], rtol=1e-5, atol=0)
    np.testing.assert_allclose(total.item(), case.arrays["loss_total"][0], rtol=1e-5, atol=0)


def test_gradients(case):
    total, _ = case.loss()
    total.backward()
    for role in case.roles:
        for i, level in enumerate(case.raw[role]):
            gradient = level.grad.flatten().numpy()
            np.testing.assert_allclose(gradient[::5], case.arrays[f"grad_{role}_{i}_s5"], atol=1e-6, rtol=1e-4)
            norm = np.sqrt(np.square(gradient, dtype=np.float64).sum())
            assert norm == pytest.approx(case.facts["grad_l2"][f"{role}_{i}"], rel=1e-5)


def test_assignments(case, monkeypatch):
    seen = []

    def remember(*arguments):
        assigned = assign(*arguments)
        seen.append((assigned, arguments[3]))
        return assigned

    assign = detection.assign
    monkeypatch.setattr(detection, "assign", remember)
    case.loss()
    assert len(seen) == len(case.roles)
    for role, (assigned, targets) in zip(case.roles, seen, strict=True):
        picture, slot = assigned.positive.nonzero(as_tuple=True)
        target = assigned.targets[picture, slot]
        found = np.stack((picture, assigned.anchors[picture, slot], targets.labels[picture, target]), 1)
        order = np.lexsort(found.T[::-1])
        columns = [case.arrays[f"assign_{role}_{name}"] for name in ("image", "anchor", "label")]
        expected = np.stack(columns, 1)
        expected_order = np.lexsort(expected.T[::-1])
        np.testing.assert_array_equal(found[order], expected[expected_order])
        scores = assigned.soft[picture, slot].numpy()[order]
        np.testing.assert_allclose(scores, case.arrays[f"assign_{role}_score"][expected_order], atol=1e-5, rtol=0)
        boxes = targets.boxes[picture, target].numpy()[order]
        np.testing.assert_allclose(boxes, case.arrays[f"assign_{role}_box_px"][expected_order], atol=1e-3, rtol=0)


@pytest.mark.parametrize("head", list(ROLES))
def test_hyper_parameters_have_an_effect_or_none_as_listed(parity_dir, head):
    without_effect = json.loads((parity_dir / "loss" / "settings_without_effect.json").read_text())[head]
    case = _load(parity_dir, f"{head}-random")
    plain = case.loss()[0].item()
    found = {name: case.loss(case.settings(**{name: 1.7}))[0].item() == plain for name in without_effect}
    assert found == without_effect
