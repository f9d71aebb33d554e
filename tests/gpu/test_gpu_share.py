"""`--gpu-share`: the allocator is held to the share of the whole card."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu
PROGRAM = """
import torch
from yolov9.config.gpu_share import OVERHEAD_BYTES
from yolov9.engine.gpu_memory import limit_allocator
device = torch.device("cuda", 0)
limit_allocator(device, 0.25)
free, total = torch.cuda.mem_get_info(device)
allowed = total // 4 - OVERHEAD_BYTES
held = torch.empty(allowed - (64 << 20), dtype=torch.uint8, device=device)
try:
    torch.empty(128 << 20, dtype=torch.uint8, device=device)
except torch.OutOfMemoryError:
    used = free - torch.cuda.mem_get_info(device)[0]
    print("held to", used <= allowed)
"""


def test_a_process_gets_its_share_and_no_more() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "held to True\n", done.stderr
