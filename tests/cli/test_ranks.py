"""Several ranks of one training on one machine: they stop together, and end with one exit code. Stand-ins train."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

LAUNCHER = """
import sys
from entrypoint import ranks
ranks.GRACE_S = 0.2
ranks.main(["2", sys.executable, "-c", sys.argv[1]])
"""
BY_RANK = "import os, signal, sys; rank = int(os.environ['RANK']); "
Launch = Callable[..., "subprocess.Popen[str]"]
STUCK = "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"


@pytest.fixture
def launch(clean_environment: dict[str, str]) -> Iterator[Launch]:
    """Starts two ranks of a stand-in; ends what is left of them."""
    started: list[subprocess.Popen[str]] = []

    def call(trainer: str, **variables: str) -> "subprocess.Popen[str]":
        pipe, environment = subprocess.PIPE, {**clean_environment, **variables}
        command = [sys.executable, "-c", LAUNCHER, BY_RANK + trainer]
        process = subprocess.Popen(
            command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )
        started.append(process)
        return process

    yield call
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(
    ("trainer", "exit_code"),
    [
        ("sys.exit(0)", 0),
        ("sys.exit(75)", 75),
        ("sys.exit(75 if rank else 0)", 75),
        ("sys.exit(65)", 65),
        (f"sys.exit(73) if rank else None; {STUCK}", 73),
        (f"os.kill(os.getpid(), signal.SIGKILL) if rank else None; {STUCK}", -signal.SIGKILL),
    ],
)
def test_p20_the_group_ends_as_its_ranks_end(launch: Launch, trainer: str, exit_code: int) -> None:
    process = launch(trainer)
    _, log = process.communicate(timeout=60)
    assert process.returncode == exit_code, log
    assert "Traceback" not in log


def test_each_rank_gets_a_stop_once(launch: Launch) -> None:
    # The signal is waited for and not handled, so that it may come before the waiting begins.
    trainer = (
        "stop = [signal.SIGTERM]; signal.pthread_sigmask(signal.SIG_BLOCK, stop); os.write(1, b'ready\\n'); "
        "signal.sigwait(stop); again = signal.sigtimedwait(stop, 0.3); "
        "os.write(1, b'once\\n' if again is None else b'again\\n'); sys.exit(75)"
    )
    process = launch(trainer)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    process.send_signal(signal.SIGTERM)
    output, log = process.communicate(timeout=60)
    assert output.splitlines() == ["once"] * 2
    assert process.returncode == 75, log


def test_ranks_whose_launcher_is_killed_are_told_to_stop(launch: Launch) -> None:
    trainer = (
        "signal.signal(signal.SIGTERM, lambda number, frame: (os.write(1, b'told\\n'), os._exit(75))); "
        "os.write(1, b'ready\\n'); signal.pause()"
    )
    process = launch(trainer)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    process.kill()
    output, _ = process.communicate(timeout=60)
    assert output.splitlines() == ["told"] * 2


def test_the_meeting_place_is_removed(launch: Launch, tmp_path: Path) -> None:
    process = launch("sys.exit(0)", TMPDIR=str(tmp_path))
    process.communicate(timeout=60)
    assert list(tmp_path.glob("yolov9-ranks-*")) == []
