"""What is compiled ahead is what a step launches."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from yolov9.config.environment import child_environment
from yolov9.engine.kernels_ahead import StepToCompile
from yolov9.model import build_model

pytestmark = pytest.mark.gpu

CHECK = """
import torch
from yolov9.engine.kernel_check import check_kernels
device = torch.device("cuda", 0)
check_kernels(device)
"""
"""A run does this first, and has a kernel of its own for it."""
STEP = f"""{CHECK}
from yolov9.engine import bench_step
from yolov9.engine.captured import side_stream
case = bench_step.Case("yolov9-t", batch=4, plain=False, imgsz=320, recompute=False)
with side_stream(device):
    step = bench_step.make_step(case, device, search=False)
    step.add_gradient(*bench_step.make_batch(case, device))
torch.cuda.synchronize()
"""


def test_a_step_compiles_nothing_that_was_compiled_ahead(tmp_path: Path) -> None:
    environment = child_environment({"TRITON_CACHE_DIR": str(tmp_path)})
    graph = build_model("yolov9-t", nc=80).graph
    capability = list(torch.cuda.get_device_capability())
    step = StepToCompile(
        graph=graph, classes=80, imgsz=320, batches=[4], dtype="bfloat16", recompute=False, loss={},
        capability=capability, processes=8,
    )  # fmt: skip
    subprocess.run([sys.executable, "-c", CHECK], env=environment, check=True, timeout=300)
    ahead = [sys.executable, "-m", "yolov9.engine.compile_kernels", json.dumps(asdict(step))]
    subprocess.run(ahead, env=environment, check=True, timeout=300)
    compiled = set(tmp_path.glob("*/*.cubin"))
    subprocess.run([sys.executable, "-c", STEP], env=environment, check=True, timeout=300)
    more = sorted(path.stem for path in set(tmp_path.glob("*/*.cubin")) - compiled)
    assert compiled
    assert not more
