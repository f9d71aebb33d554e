"""Counters of real processes and of /proc on paper."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from yolov9.engine.process_usage import TICKS_A_SECOND, Usage, UsageMeter, read_usage, tree_cpu_s

STAT = "7 (a) b) R 1 1 1 0 -1 4194304 1 0 0 0 250 50 0 0 20 0 1 0 1 1 1\n"


def write(folder: Path, **files: str) -> Path:
    (folder / "7").mkdir(parents=True)
    for name, text in files.items():
        (folder / "7" / name).write_text(text)
    return folder


def test_times_and_bytes_are_read(tmp_path: Path) -> None:
    files = {"stat": STAT, "schedstat": "9 1500000000 4\n", "io": "rchar: 5\nread_bytes: 4096\n"}
    usage = read_usage(7, write(tmp_path, **files))
    assert usage == Usage(cpu_s=300 / TICKS_A_SECOND, runnable_s=1.5, read_bytes=4096)


@pytest.mark.parametrize("files", [{}, {"schedstat": "", "io": "nothing\n"}])
def test_what_the_kernel_does_not_tell_is_unknown(tmp_path: Path, files: dict[str, str]) -> None:
    usage = read_usage(7, write(tmp_path, stat=STAT, **files))
    assert usage is not None
    assert (usage.runnable_s, usage.read_bytes) == (0.0, None)


def test_a_process_that_is_gone_is_nothing(tmp_path: Path) -> None:
    assert read_usage(7, tmp_path) is None


def test_unknown_stays_unknown_in_sums() -> None:
    assert (Usage(read_bytes=1) + Usage(cpu_s=2)).read_bytes is None
    assert (Usage(read_bytes=5) - Usage(read_bytes=2)).read_bytes == 3


def test_what_a_busy_process_uses_is_seen() -> None:
    program = "print('ready', flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        meter = UsageMeter([process.pid])
        while meter.used().cpu_s < 0.1:
            os.sched_yield()
        process.kill()


def test_a_tree_counts_live_processes_and_reaped_ones(tmp_path: Path) -> None:
    for pid, children, own, reaped in ((7, "8 9", 100, 40), (8, "", 50, 0), (9, "10", 1, 2)):
        folder = tmp_path / str(pid) / "task" / str(pid)
        folder.mkdir(parents=True)
        (folder / "children").write_text(children)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) R 1 1 1 0 -1 0 1 0 0 0 {own} 0 {reaped} 0 20 0 1 0\n")
    assert tree_cpu_s(7, tmp_path) == 193 / TICKS_A_SECOND
