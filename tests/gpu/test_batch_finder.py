"""The micro-batch is measured on a real GPU: within the share, as predicted, and nothing is left behind."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from yolov9.config.environment import Environment
from yolov9.config.recipe import load_recipe
from yolov9.config.settings import TrainSettings
from yolov9.data import DatasetIndex, load_dataset_config
from yolov9.engine.batch_probe import choose_micro_batch
from yolov9.engine.captured import side_stream
from yolov9.engine.distributed import Ranks
from yolov9.engine.gpu_memory import limit_allocator
from yolov9.engine.out_of_memory import free_caches
from yolov9.engine.precision import choose_precision, set_backend_switches
from yolov9.engine.run_context import RunContext, with_defaults
from yolov9.engine.step_setup import make_step
from yolov9.model import build_model

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda", 0)


@pytest.fixture
def index(tmp_path: Path) -> DatasetIndex:
    for kind in ("images", "labels"):
        (tmp_path / kind).mkdir()
    for number in range(8):
        cv2.imwrite(str(tmp_path / "images" / f"{number}.png"), np.zeros((64, 64, 3), np.uint8))
        (tmp_path / "labels" / f"{number}.txt").write_text("0 0.5 0.5 0.4 0.4\n" * 3)
    (tmp_path / "data.yaml").write_text(json.dumps({"train": "images", "val": "images", "names": ["thing"]}))
    return DatasetIndex.build(load_dataset_config(str(tmp_path / "data.yaml")), "train", cache_dir=None)


def context_of(tmp_path: Path, **changes: Any) -> RunContext:
    settings = with_defaults(TrainSettings(cfg="yolov9-t", imgsz=320, **changes))
    return RunContext(
        settings=settings,
        recipe=load_recipe(settings.hyp),
        run_dir=tmp_path,
        precision=choose_precision("auto", DEVICE),
        ranks=Ranks(),
        environment=Environment(),
    )


@pytest.fixture
def share() -> Any:
    """Holds this process to 8 GB for the time of a test."""
    total = torch.cuda.mem_get_info(DEVICE)[1]
    set_backend_switches(DEVICE)
    value = 8e9 / total
    limit_allocator(DEVICE, value)
    yield value
    torch.cuda.set_per_process_memory_fraction(1.0, DEVICE)


def test_the_choice_fits_its_share_is_as_predicted_and_leaves_nothing(
    tmp_path: Path, index: DatasetIndex, share: float
) -> None:
    context = context_of(tmp_path, batch_size=512, optimisation_batch=512, gpu_share=share)
    model = build_model("yolov9-t", nc=1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    states = torch.get_rng_state(), torch.cuda.get_rng_state(DEVICE)
    held = torch.cuda.memory_allocated(DEVICE)
    with side_stream(DEVICE):
        choice = choose_micro_batch(context, model, index, largest=True)
    assert choice.found.measured_bytes <= choice.budget_bytes <= 8e9
    assert choice.found.predicted_bytes == pytest.approx(choice.found.measured_bytes, rel=0.05)
    assert choice.found.pictures < 512
    assert choice.found.measured_bytes > 0.85 * choice.budget_bytes
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(states[0], torch.get_rng_state())
    assert torch.equal(states[1], torch.cuda.get_rng_state(DEVICE))
    assert torch.cuda.memory_allocated(DEVICE) <= held + (64 << 20), "cuBLAS keeps its workspaces"


def test_a_captured_step_that_runs_out_of_memory_is_done_again(tmp_path: Path) -> None:
    context = context_of(tmp_path, batch_size=16)
    torch.manual_seed(0)
    free_caches(DEVICE)
    torch.cuda.reset_peak_memory_stats(DEVICE)
    with side_stream(DEVICE):
        parts = make_step(context, build_model("yolov9-t", nc=1), Ranks(), search=False)
        images = torch.rand(16, 320, 320, 3, dtype=context.precision.dtype, device=DEVICE).permute(0, 3, 1, 2)
        targets = torch.tensor([[[0.0, 0.5, 0.5, 0.4, 0.4]]], device=DEVICE).expand(16, 8, 5).contiguous()
        for _ in range(3):
            parts.step.add_gradient(images, targets)
            parts.step.update()
        # What is held now is all that there is; a larger batch has to go through in parts of what fits.
        parts.step.micro_batches.make_room()
        total = torch.cuda.mem_get_info(DEVICE)[1]
        allowed = torch.cuda.max_memory_reserved(DEVICE) * 1.2
        torch.cuda.set_per_process_memory_fraction(allowed / total, DEVICE)
        try:
            for _ in range(3):
                parts.step.add_gradient(images.repeat(4, 1, 1, 1), targets.repeat(4, 1, 1))
                parts.step.update()
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, DEVICE)
    assert parts.step.micro_batches.policy.limit in (8, 16, 32)
    assert parts.step.faults().total == 0
    assert all(torch.isfinite(value).all() for value in parts.model.parameters())


def test_captured_parts_add_up_to_the_whole_batch(tmp_path: Path) -> None:
    """Gradients of a new model in bf16 differ as much between two orders of addition; tests/unit compares them."""
    totals = []
    for micro_batch in (None, 4):
        torch.manual_seed(0)
        with side_stream(DEVICE):
            model = build_model("yolov9-t", nc=1)
            parts = make_step(
                context_of(tmp_path, batch_size=16), model, Ranks(), micro_batch=micro_batch, search=False
            )
            # Four times the same four pictures: batch statistics are the same for parts and whole.
            some = torch.rand(4, 320, 320, 3, device=DEVICE).to(torch.bfloat16)
            images = some.repeat(4, 1, 1, 1).permute(0, 3, 1, 2)
            targets = torch.tensor([[[0.0, 0.5, 0.5, 0.4, 0.4]]], device=DEVICE).expand(16, 8, 5).contiguous()
            each = []
            for number in range(3):  # as it is, captured, replayed
                total = float(parts.step.add_gradient(images, targets))
                each.append(parts.step.flat.gradients.clone())
                parts.step.flat.zero_gradients()
                # Also where a batch of parts has met its shapes twice already.
                assert parts.step.gradient.replays(images, targets, micro_batch or 16) == (number > 0)
        for one in each[1:]:
            torch.testing.assert_close(one, each[0], rtol=0.02, atol=0.02 * float(each[0].abs().max()))
        totals.append(total)
    assert totals[1] == pytest.approx(totals[0], rel=0.05)
