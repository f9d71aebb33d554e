"""A training whose numbers are no longer finite in half precision goes on without it, from where they were good."""

import csv
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

GRAPH = Path(__file__).parents[1] / "unit" / "engine" / "tiny-graph.yaml"
TOO_HIGH_FOR_BF16 = 3.4e38
"""A float32, and infinite in bf16: a softmax of such numbers is even in the one, and not a number in the other."""
BINS = 16
HALF_ON_THE_CPU = """
import entrypoint.plan
from entrypoint.cli import main
from entrypoint.plan.decision import Decision
entrypoint.plan.decide_amp = lambda gpus, request: Decision(
    name="amp", value=request.settings.amp, source=request.source("amp"), reason="also without a GPU"
)
raise SystemExit(main())
"""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def train(run: Run, tiny_set: Path) -> Run:
    """`train` with four updates an epoch, of a program that plans half precision for the CPU too."""
    job = ("train", "--data", str(tiny_set), "--cfg", str(GRAPH), "--img", "64", "--device", "cpu", "--noplots")
    job += ("--batch", "2", "--optimisation-batch", "2", "--workers", "0")
    return lambda *words: run(*job, *words, program=("-c", HALF_ON_THE_CPU))


def raise_biases(checkpoint: Path) -> None:
    """Gives the bins of the left side of all boxes biases that only float32 can hold."""
    content: dict[str, Any] = torch.load(checkpoint, weights_only=True)
    for part in ("model", "ema"):
        biases = [value for name, value in content[part].items() if re.search(r"\.cv2\.\d\.2\.bias$", name)]
        assert [len(bias) for bias in biases] == [4 * BINS] * 3, "one for each level"
        for bias in biases:
            bias[:BINS] = TOO_HIGH_FOR_BF16
    torch.save(content, checkpoint)


def test_p14_it_goes_back_to_the_last_good_checkpoint_and_on_in_float32(train: Run, tmp_path: Path) -> None:
    assert train("--epochs", "2", "--amp", "off").returncode == 0
    folder = tmp_path / "runs" / "train" / "exp"
    raise_biases(folder / "weights" / "last.pt")
    done = train("--resume", str(folder), "--epochs", "12", "--amp", "bf16")
    assert done.returncode == 0, done.stderr
    assert "updates had a gradient that is not finite" in done.stderr
    assert "back to the last checkpoint, and on with --amp off" in done.stderr
    assert done.stderr.count("in epoch 3 after 0 batches") == 2, "pictures of updates that were left out come again"
    with (folder / "results.csv").open() as file:
        assert [int(row[0]) for row in list(csv.reader(file))[1:]] == list(range(12))
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["request"]["amp"] == {"value": "off", "source": "diverged in bf16"}


def test_without_a_checkpoint_it_starts_again_and_without_half_precision_it_ends(train: Run, tmp_path: Path) -> None:
    recipe = tmp_path / "steep.yaml"
    recipe.write_text("lr0: 1.0e+30\nwarmup_bias_lr: 1.0e+30\n")
    done = train("--epochs", "9", "--amp", "bf16", "--hyp", str(recipe))
    assert done.returncode == 76, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("on with --amp off") == 1
    assert done.stderr.count("found:  the ") == 2
    assert not list((tmp_path / "runs" / "train" / "exp" / "weights").iterdir())


def test_the_checkpoint_of_another_run_in_the_same_folder_is_not_gone_on_from(train: Run, tmp_path: Path) -> None:
    assert train("--epochs", "1", "--amp", "off").returncode == 0
    recipe = tmp_path / "steep.yaml"
    recipe.write_text("lr0: 1.0e+30\nwarmup_bias_lr: 1.0e+30\n")
    done = train("--epochs", "9", "--amp", "bf16", "--hyp", str(recipe), "--exist-ok", "--name", "exp")
    assert done.returncode == 76, done.stderr
    assert done.stderr.count("on with --amp off") == 1
    assert "resuming" not in done.stderr
