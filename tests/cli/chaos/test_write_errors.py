"""A disk that fails below a training costs no checkpoint: full, read-only, over quota, or broken, at any call.

A library below Python makes calls on files of the run fail. Its log tells what happened; so it is known exactly which
checkpoint has to be there afterwards. Then the run goes on with a good disk, and ends as if nothing had happened.
"""

import errno
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from yolov9.engine.checkpoint import newest_loadable
from yolov9.errors import ExitCode

ERRORS = (errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT)
KINDS = ("any", "any", "write", "fsync", "link", "rename")
"""Which calls fail; uniformly over all calls, the rare ones would hardly ever come."""
HOW_MANY = (1, 1, 3, 0)
"""Calls that fail in a row; 0: all from there on."""
SAVES = [(0, 3), (1, 3), (2, 3), (3, 0)]
"""Epoch and batch of what is saved, in order: before each validation, and at the end."""
SOURCE = Path(__file__).with_name("failing_disk.c")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--chaos-runs")))


@pytest.fixture(scope="session")
def library(chaos_dir: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler (apt-get install gcc): errors below Python cannot be injected")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", chaos_dir / "failing_disk.so", SOURCE, "-ldl"], check=True
    )
    return chaos_dir / "failing_disk.so"


@pytest.fixture(scope="session")
def failing_trainers(trainers: Any, trainer_environment: dict[str, str], library: Path) -> Iterator[Any]:
    """Trainers whose disk fails when their variables say so."""
    failing = type(trainers)({**trainer_environment, "LD_PRELOAD": str(library)})
    yield failing
    failing.close()


def calls_in(log: Path) -> list[tuple[str, int, str]]:
    """What the library saw: call, errno it failed with or 0, path."""
    lines = log.read_text(errors="surrogateescape").splitlines() if log.exists() else []
    return [(call, int(error), path) for _, call, error, path in (line.split(" ", 3) for line in lines)]


def newest_save(calls: list[tuple[str, int, str]]) -> tuple[int, int] | None:
    """Epoch and batch of the last checkpoint that came through."""
    attempt, newest = -1, None
    for call, error, path in calls:
        if call == "open" and path.endswith("weights/last.pt.partial"):
            attempt += 1
        elif call == "rename" and path.endswith("weights/last.pt") and not error:
            newest = SAVES[attempt]
    return newest


@pytest.fixture(scope="session")
def survey(failing_trainers: Any, chaos_dir: Path, chaos_settings: dict[str, Any]) -> Counter[str]:
    """How many calls on its files an undisturbed run makes, by kind."""
    run_dir, log = chaos_dir / "survey" / "run", chaos_dir / "survey" / "calls.log"
    failing_trainers.start(run_dir, settings_of(chaos_settings, 0), **variables_of(run_dir, log))
    assert failing_trainers.status() == 0, run_dir.with_name("trainer.log").read_text()
    calls = calls_in(log)
    assert newest_save(calls) == SAVES[-1]
    return Counter([kind for call, _, _ in calls for kind in (call, "any")])


def settings_of(settings: dict[str, Any], seed: int) -> dict[str, Any]:
    return {**settings, "noplots": seed % 4 != 0, "cache": "disk" if seed % 2 else "off"}


def variables_of(run_dir: Path, log: Path, **disk: int | str) -> dict[str, str]:
    variables = {"YOLOV9_CACHE_DIR": str(run_dir / "cache"), "DISK_PATH": f"{run_dir}/", "DISK_LOG": str(log)}
    return variables | {f"DISK_{name.upper()}": str(value) for name, value in disk.items()}


def test_a_failing_disk_costs_no_checkpoint(
    tmp_path: Path,
    failing_trainers: Any,
    survey: Counter[str],
    undisturbed: Path,
    chaos_settings: dict[str, Any],
    state_of: Callable[[Path], dict[str, Any]],
    tally: Counter[str],
    seed: int,
) -> None:
    rng = np.random.default_rng([seed, 2])
    error, count, kind = int(rng.choice(ERRORS)), int(rng.choice(HOW_MANY)), str(rng.choice(KINDS))
    first = int(rng.integers(1, survey[kind] + 1))
    run_dir, calls_log, settings = tmp_path / "run", tmp_path / "calls.log", settings_of(chaos_settings, seed)
    only = {} if kind == "any" else {"call": kind}
    disk = variables_of(run_dir, calls_log, error=error, count=count, **{"from": first}, **only)
    failing_trainers.start(run_dir, settings, **disk)
    status, log = failing_trainers.status(), (tmp_path / "trainer.log").read_text()
    what = f"{errno.errorcode[error]} x {count} from {kind} {first}\n{log}"
    calls = calls_in(calls_log)
    for call, injected, _ in calls:
        if injected:
            tally[f"write errors in {call}"] += 1
            tally[f"write errors {errno.errorcode[error]}"] += 1
    assert status in (ExitCode.DONE, ExitCode.OUTPUT_NOT_WRITABLE), what
    assert "Traceback" not in log, what
    assert "Exception" not in log, what
    assert status == ExitCode.DONE or all(word in log for word in ("found:", "needed:", "type:")), what
    saved = newest_save(calls)
    if saved is not None:
        progress = newest_loadable(run_dir)[1]["training"]["progress"]
        assert (progress["epoch"], progress["batch"]) == saved, what
    tally[f"runs on a failing disk that ended with {status}"] += 1
    if status != ExitCode.DONE:
        resume = {"resume": str(run_dir)} if saved else {}
        failing_trainers.start(run_dir, {**settings, **resume})
        assert failing_trainers.status() == 0, (tmp_path / "trainer.log").read_text()
    table_was_hit = any(
        injected and path.endswith(("results.csv", ".csv.partial", "/run")) for _, injected, path in calls
    )
    expected, found = state_of(undisturbed), state_of(run_dir)
    different = [name for name in expected if found[name] != expected[name]]
    assert different in ([], ["results.csv"] if table_was_hit and status == ExitCode.DONE else []), what


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that is nearly full."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(mount, check=False).returncode:
        pytest.skip("mounting a small tmpfs needs root with CAP_SYS_ADMIN")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_p16_a_second_save_that_finds_the_disk_full_leaves_the_first(
    small_disk: Path, trainers: Any, chaos_settings: dict[str, Any]
) -> None:
    run_dir = small_disk / "jobs" / "run"
    trainers.start(run_dir, {**chaos_settings, "epochs": 1})
    assert trainers.status() == 0
    before = (run_dir / "weights" / "last.pt").read_bytes()
    (small_disk / "ballast").write_bytes(b"")
    with (small_disk / "ballast").open("wb") as file:
        free = os.statvfs(small_disk)
        file.write(bytes(free.f_bavail * free.f_frsize - 64 * 1024))
    trainers.start(run_dir, {**chaos_settings, "resume": str(run_dir)})
    assert trainers.status() == ExitCode.OUTPUT_NOT_WRITABLE
    assert (run_dir / "weights" / "last.pt").read_bytes() == before
    log = (run_dir.parent / "trainer.log").read_text()
    assert "No space left on device" in log
    assert "MB free" in log
    assert "Traceback" not in log
    (small_disk / "ballast").unlink()
    trainers.start(run_dir, {**chaos_settings, "resume": str(run_dir)})
    assert trainers.status() == 0
    assert newest_loadable(run_dir)[1]["training"]["progress"]["epoch"] == chaos_settings["epochs"]


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename"])
def test_a_plan_that_cannot_be_written_is_the_results_folder(
    tmp_path: Path, library: Path, trainer_environment: dict[str, str], chaos_settings: dict[str, Any], call: str
) -> None:
    disk = {"DISK_PATH": "plan.json", "DISK_LOG": str(tmp_path / "calls.log"), "DISK_FROM": "1", "DISK_COUNT": "0"}
    disk["DISK_CALL"] = call
    done = subprocess.run(
        [sys.executable, "-m", "entrypoint", "train", "--data", chaos_settings["data"], "--device", "cpu"],
        env={**trainer_environment, "LD_PRELOAD": str(library), **disk},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == ExitCode.OUTPUT_NOT_WRITABLE, done.stderr
    assert all(word in done.stderr for word in ("found:", "needed:", "type:", "No space left", "free"))
    assert "Traceback" not in done.stderr
