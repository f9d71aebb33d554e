"""Two processes that train one model, as torchrun starts them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from yolov9.engine.checkpoint import read_training_checkpoint

GRAPH = Path(__file__).parent / "tiny-graph.yaml"


def train_with_two_ranks(folder: Path, data: Path, **changes: Any) -> str:
    settings = {
        "data": str(data),
        "cfg": str(GRAPH),
        "epochs": 2,
        "batch_size": 2,
        "optimisation_batch": 8,
        "imgsz": 64,
        "workers": 0,
        "device": "cpu",
        "noplots": True,
        **changes,
    }
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"command": "train", "settings": settings, "run_dir": str(folder / "run")}))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "yolov9", str(plan)]
    done = subprocess.run([sys.executable, *launcher], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_two_ranks_train_one_model_and_write_each_file_once(
    tmp_path: Path, tiny_data: Path, finished_run: Path
) -> None:
    log = train_with_two_ranks(tmp_path, tiny_data)
    both = read_training_checkpoint(tmp_path / "run" / "weights" / "last.pt")["training"]
    alone = read_training_checkpoint(finished_run / "weights" / "last.pt")["training"]
    # One process with batch 4 and two with batch 2 take the same steps over the same number of pictures.
    for name in ("epoch", "batch", "last_step", "optimizer_steps", "finished"):
        assert both["progress"][name] == alone["progress"][name]
    assert both["pictures_per_step"] == alone["pictures_per_step"] == 8
    assert log.count("epoch 2/2") == 1
    assert len((tmp_path / "run" / "results.csv").read_text().splitlines()) == 3
