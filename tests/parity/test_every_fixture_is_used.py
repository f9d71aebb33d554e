"""The list of fixtures and the tests that exercise them, and that nothing is missing from it."""

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

EXERCISED_BY = {
    "assigner/*": ["test_assigner.py"],
    "checkpoints/*": ["test_checkpoints.py"],
    "cli/flags.json": ["test_flags.py"],
    "curves/*.csv": ["test_results_table.py"],
    "data/box_candidates.json": ["test_augment_geometry.py"],
    "data/boxes.json": ["test_data_boxes.py"],
    "data/copy_paste.*": ["test_augment_copy_paste.py"],
    "data/geometry.json": ["test_augment_geometry.py"],
    "data/hsv.npz": ["test_augment_colour.py"],
    "data/images.json": ["test_data_images.py"],
    "data/label_files.json": ["test_data_labels.py"],
    "data/letterbox.json": ["test_data_letterbox.py"],
    "data/mini/*": ["test_augment_val_items.py", "test_data_images.py"],
    "data/mosaic.*": ["test_augment_mosaic.py"],
    "data/rect.json": ["test_data_letterbox.py"],
    "data/val_items.*": ["test_augment_val_items.py"],
    "iou/pairs.npz": ["test_iou.py"],
    "loss/*": ["test_loss.py"],
    "metrics/*": ["test_metrics.py"],
    "models/*": ["test_models.py"],
    "nms/*": ["test_nms.py"],
    "optim/train-steps-yolov9-t.json": ["test_train_steps.py"],
    "optim/*": ["test_optim.py"],
    "reparam/*": ["test_reparam.py"],
    "structure/*": ["test_structure.py"],
}
ABOUT_THE_REFERENCE_ITSELF = ["*.md", "environment.json", "noise.json"]
"""Explanations, library versions, and how much the reference differs from itself: nothing to compare with."""


def _fixtures(parity_dir: Path) -> list[str]:
    names = [path.relative_to(parity_dir).as_posix() for path in parity_dir.rglob("*") if path.is_file()]
    return [name for name in names if not any(fnmatch(name, pattern) for pattern in ABOUT_THE_REFERENCE_ITSELF)]


def test_every_fixture_has_a_test(parity_dir: Path) -> None:
    fixtures = _fixtures(parity_dir)
    missing = [name for name in fixtures if not any(fnmatch(name, pattern) for pattern in EXERCISED_BY)]
    assert fixtures
    assert missing == []


@pytest.mark.parametrize("pattern", EXERCISED_BY)
def test_the_named_tests_read_their_fixtures(pattern: str, parity_dir: Path) -> None:
    assert any(fnmatch(name, pattern) for name in _fixtures(parity_dir)), "the list names a fixture that is not there"
    folder, _, name = pattern.partition("/")
    for test_file in EXERCISED_BY[pattern]:
        text = (Path(__file__).parent / test_file).read_text(encoding="utf-8")
        assert f'"{folder}"' in text
        assert re.split(r"[*./]", name)[0] in text
