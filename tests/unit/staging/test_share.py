"""Real processes that share a copy."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from entrypoint.staging.files import DataFiles
from entrypoint.staging.share import sweep

REPOSITORY = Path(__file__).parents[3]
JOB = """
import sys
from pathlib import Path
from entrypoint.staging import hold
from entrypoint.stop_signals import stop_is_interrupt
from yolov9.config.environment import Environment
from yolov9.logs import setup_logging
data, target, slow = sys.argv[1:]
setup_logging()
fill = hold._fill
def filled(files, folder):
    print("copying", flush=True)
    if slow == "slow":
        (folder / "files").mkdir()
        (folder / "files" / "half").write_text("x")
        sys.stdin.readline()
    fill(files, folder)
hold._fill = filled
with stop_is_interrupt(), hold.data_copy(data, target, Environment()) as copy:
    print("using", copy, flush=True)
    sys.stdin.readline()
print("done", flush=True)
"""
Job = subprocess.Popen[str]
Start = Callable[..., Job]
LeftIn = Callable[[], list[str]]


@pytest.fixture
def start(data: Path, target: Path) -> Iterator[Start]:
    """Starts a job that says what it does and goes on at each line it gets."""
    started: list[Job] = []

    def call(slow: str = "") -> Job:
        process = subprocess.Popen(
            [sys.executable, "-c", JOB, str(data), str(target), slow],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()


def wait_for(process: Job, word: str) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if word in line:
            return line
    raise AssertionError(f"{word!r} never came: {lines}")


def go_on(process: Job) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_p08_two_jobs_that_start_together_copy_once(start: Start, left_in: LeftIn) -> None:
    first, second = start("slow"), None
    wait_for(first, "copying")
    second = start()
    wait_for(second, "another job is copying")
    go_on(first)
    used = wait_for(first, "using")
    assert wait_for(second, "using") == used
    go_on(first)
    wait_for(first, "done")
    assert len(left_in()) == 2, "the other one still uses it"
    go_on(second)
    rest = second.communicate(timeout=60)[0]
    assert "removed" in rest
    assert "copying\n" not in rest
    assert left_in() == []


def test_when_the_first_fails_the_second_copies(start: Start, left_in: LeftIn) -> None:
    first = start("slow")
    wait_for(first, "copying")
    second = start()
    wait_for(second, "another job is copying")
    first.send_signal(signal.SIGTERM)
    assert "KeyboardInterrupt" in first.communicate(timeout=60)[0]
    wait_for(second, "copying\n")
    wait_for(second, "using /")
    go_on(second)
    wait_for(second, "done")
    assert left_in() == []


def test_p08_a_copy_that_was_killed_halfway_is_made_anew(start: Start, left_in: LeftIn) -> None:
    first = start("slow")
    wait_for(first, "copying")
    first.kill()
    first.wait()
    assert len(left_in()) == 2
    second = start()
    wait_for(second, "copying")
    folder = Path(wait_for(second, "using").split()[1]).parent
    assert not (folder / "files" / "half").exists()


def test_the_copy_of_a_killed_job_is_used_again(start: Start) -> None:
    first = start()
    wait_for(first, "using")
    first.kill()
    first.wait()
    second = start()
    assert "another job made" in wait_for(second, "copy that")
    wait_for(second, "using /")


def test_sweeping_removes_what_no_job_uses(start: Start, target: Path, left_in: LeftIn, data: Path) -> None:
    first = start()
    wait_for(first, "using")
    root = target / f"yolov9-stage-{os.getuid()}"
    sweep(root, keep="")
    assert len(left_in()) == 2, "it is in use"
    first.kill()
    first.wait()
    sweep(root, keep=Path(left_in()[0]).stem)
    assert len(left_in()) == 2, "it may be of use"
    sweep(root, keep="")
    assert left_in() == []


def test_sweeping_a_folder_that_is_not_there_is_nothing(tmp_path: Path) -> None:
    sweep(tmp_path / "none", keep="")
    assert not (tmp_path / "none").exists()


def test_the_manifest_lists_path_size_and_time(find: Callable[[], DataFiles], data: Path) -> None:
    files = find()
    assert {Path(entry.path).suffix for entry in files.entries} == {".png", ".txt"}
    assert len(files.entries) == 12 + 10
    assert files.footprint_bytes > files.size_bytes
