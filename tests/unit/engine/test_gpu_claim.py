"""Two jobs that start at the same moment look at the free memory of a GPU one after the other."""

import subprocess
import sys
from pathlib import Path

import pytest

from yolov9.engine.gpu_claim import GpuClaim

OTHER_JOB = """
import sys
from pathlib import Path
from yolov9.engine.gpu_claim import GpuClaim
from yolov9.logs import setup_logging
setup_logging()
with GpuClaim(Path(sys.argv[1]), "GPU-0"):
    print("looks", flush=True)
    sys.stdin.readline()
"""


def other_job(folder: Path) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", OTHER_JOB, str(folder)], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


def test_p10_the_second_job_waits_until_the_first_has_taken_its_memory(tmp_path: Path) -> None:
    with GpuClaim(tmp_path, "GPU-0") as claim, other_job(tmp_path) as other:
        assert other.stdout is not None
        assert other.stderr is not None
        assert "waiting until it has it" in other.stderr.readline()
        claim.release()
        assert other.stdout.readline() == "looks\n"
        assert other.communicate("\n")[0] == ""
        assert other.returncode == 0


def test_a_killed_job_leaves_no_lock_behind(tmp_path: Path) -> None:
    with other_job(tmp_path) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "looks\n"
        other.kill()
        other.wait()
        with GpuClaim(tmp_path, "GPU-0"):
            pass


def test_other_gpus_and_unwritable_folders_lock_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        GpuClaim(tmp_path, "GPU-0"),
        GpuClaim(tmp_path, "GPU-1"),
        GpuClaim(tmp_path / "file", "GPU-0"),
        GpuClaim(tmp_path, ""),
    ):
        assert sorted(path.name for path in tmp_path.rglob("*.lock")) == ["GPU-0.lock", "GPU-1.lock"]


def test_a_job_that_never_takes_its_memory_is_not_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with other_job(tmp_path) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "looks\n"
        with GpuClaim(tmp_path, "GPU-0", longest_wait_s=0.1):
            assert "not waiting any more" in caplog.text
        other.communicate("\n")
