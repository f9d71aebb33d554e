"""The supervisor: signals reach the trainer, nothing is left behind, the end is explained. A stand-in trains."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from entrypoint.supervise import reap_group

SUPERVISOR = """
import sys
from entrypoint.supervise import explain, supervise
from yolov9.logs import setup_logging
setup_logging()
ending = supervise([sys.executable, *sys.argv[1:]])
explain(ending, suspects=["/dev/shm: 64 MiB", "/data: nfs4"])
print("END", ending.exit_code, flush=True)
raise SystemExit(ending.exit_code)
"""
PATIENT = """
import signal, sys
def stop(number, frame):
    print("saved after", signal.Signals(number).name, flush=True)
    sys.exit(75)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
print("ready", flush=True)
while True:
    signal.pause()
"""
DEAF = """
import signal
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, frame: print("heard", flush=True))
print("ready", flush=True)
while True:
    signal.pause()
"""
LEAVES_A_WORKER = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; print('ready', flush=True); signal.pause()"])
print("worker", child.pid, flush=True)
"""
Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start(clean_environment: dict[str, str]) -> Iterator[Start]:
    """Starts the supervisor with a stand-in for the trainer."""
    started: list[subprocess.Popen[str]] = []

    def call(trainer: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, "-c", trainer],
            env=clean_environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def wait_for(process: "subprocess.Popen[str]", word: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return line
    raise AssertionError(f"{word!r} never came")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_p17_a_stop_reaches_the_trainer_and_its_exit_code_comes_back(start: Start, number: signal.Signals) -> None:
    process = start(PATIENT)
    wait_for(process, "ready")
    process.send_signal(number)
    wait_for(process, f"saved after {number.name}")
    assert wait_for(process, "END").split() == ["END", "75"]
    assert process.wait(30) == 75


@contextmanager
def hangup(action: signal.Handlers) -> Iterator[None]:
    """What is started in this context does this with SIGHUP, however the tests themselves were started."""
    former = signal.signal(signal.SIGHUP, action)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, former)


def test_a_closed_terminal_is_one_stop_however_often_it_is_told(start: Start) -> None:
    with hangup(signal.SIG_DFL):
        process = start(DEAF)
    wait_for(process, "ready")
    process.send_signal(signal.SIGHUP)
    wait_for(process, "heard")
    for _ in range(3):
        process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    wait_for(process, "heard")
    process.send_signal(signal.SIGTERM)
    assert wait_for(process, "END").split()[1] == "137"


def test_under_nohup_a_closed_terminal_changes_nothing(start: Start) -> None:
    with hangup(signal.SIG_IGN):
        process = start(
            "import signal, sys; signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3)); print('ready', flush=True); "
            "signal.pause()"
        )
    wait_for(process, "ready")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGUSR1)
    assert wait_for(process, "END").split()[1] == "3"


def test_the_third_stop_ends_a_trainer_that_does_not_listen(start: Start) -> None:
    process = start(DEAF)
    wait_for(process, "ready")
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        wait_for(process, "heard")
    process.send_signal(signal.SIGTERM)
    assert wait_for(process, "END").split()[1] == "137"


def test_workers_that_a_trainer_leaves_are_ended(start: Start) -> None:
    process = start(LEAVES_A_WORKER)
    worker = int(wait_for(process, "worker").split()[1])
    wait_for(process, "END")
    process.wait(30)
    assert not Path(f"/proc/{worker}").exists()


def test_a_process_that_does_not_end_is_not_waited_for_for_ever() -> None:
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], process_group=0) as process:
        assert not reap_group(process.pid, 0.1)
        process.kill()
        assert reap_group(process.pid, 60)


@pytest.mark.parametrize(
    ("trainer", "exit_code", "words"),
    [
        ("raise SystemExit(3)", 3, None),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137, "docker kill"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGBUS)", 135, "/data: nfs4"),
    ],
)
def test_how_it_ended_is_explained(start: Start, trainer: str, exit_code: int, words: str | None) -> None:
    process = start(trainer)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == exit_code
    assert (words in output) if words else ("signal" not in output)


def test_a_trainer_whose_supervisor_is_killed_saves_and_ends(start: Start) -> None:
    process = start(PATIENT)
    wait_for(process, "ready")
    process.kill()
    assert "saved after SIGTERM" in wait_for(process, "saved after SIGTERM")


def test_a_signal_before_the_trainer_is_ready_is_not_lost(start: Start) -> None:
    process = start("import signal, os; signal.pause()")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not children.read_text().strip():
        os.sched_yield()
    process.send_signal(signal.SIGTERM)
    assert wait_for(process, "END").split()[1] == "75"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_before_there_is_anything_to_save_is_no_error(start: Start, number: signal.Signals) -> None:
    process = start(
        f"import signal; signal.signal({number:d}, signal.SIG_DFL); print('ready', flush=True); signal.pause()"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    output = process.stdout.read()
    assert f"ended on request ({number.name})" in output
    assert "ERROR" not in output
    assert process.wait() == 75
