"""A mount or a file that no longer answers is named in time, with the exit code of bad data, wherever it is read."""

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Started = Callable[..., AbstractContextManager["subprocess.Popen[str]"]]
TINY = ("--img", "64", "--batch", "4", "--epochs", "1000", "--noplots", "--device", "cpu", "--worker-timeout", "2")
GRAPH = str(Path(__file__).parents[1] / "unit/engine/tiny-graph.yaml")
LAZY_UNMOUNT = 2
"""umount2(2): MNT_DETACH."""


@pytest.fixture
def hanging_mount(tmp_path: Path) -> Iterator[Path]:
    """A file system whose server is there and never answers, as a network mount whose server is gone."""
    if os.getuid() or not Path("/dev/fuse").exists():
        pytest.skip("mounting needs root and /dev/fuse")
    folder = tmp_path / "hanging"
    folder.mkdir()
    system = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if system.mount(b"hanging", bytes(folder), b"fuse", 0, options):
        os.close(device)
        pytest.skip(f"mounting is not allowed here: {os.strerror(ctypes.get_errno())}")
    yield folder
    os.close(device)
    assert system.umount2(bytes(folder), LAZY_UNMOUNT) == 0


@contextmanager
def held(file: Path) -> Iterator[None]:
    """Whoever opens the file waits (45 s), as this process has a lease on it; its size and times can be looked at."""
    former = signal.signal(signal.SIGIO, signal.SIG_IGN)  # tells that somebody waits
    descriptor = os.open(file, os.O_RDWR)
    while True:
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            break
        except BlockingIOError:
            continue  # somebody has it open at this moment
    try:
        yield
    finally:
        os.close(descriptor)
        signal.signal(signal.SIGIO, former)


def assert_named(done: "subprocess.CompletedProcess[str]", file: Path) -> None:
    assert done.returncode == 65, done.stderr
    assert f"found:  {file} has not answered for 2 s" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [("train",), ("plan", "train")])
def test_a_data_file_on_a_mount_that_hangs(
    run: Run, hanging_mount: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    assert_named(run(*command, "--data", str(hanging_mount / "data.yaml"), *TINY), hanging_mount / "data.yaml")
    assert not (tmp_path / "runs").exists()


def test_pictures_on_a_mount_that_hangs(run: Run, hanging_mount: Path, tiny_set: Path) -> None:
    tiny_set.write_text(f"train: {hanging_mount}/train\nval: images/val\nnames: [a, b]\n")
    assert_named(run("train", "--data", str(tiny_set), *TINY), hanging_mount / "train")


@pytest.mark.parametrize("stage", ["off", "copies"])
def test_one_picture_that_lies_on_a_mount_that_hangs(run: Run, hanging_mount: Path, tiny_set: Path, stage: str) -> None:
    link = tiny_set.parent / "images/train/3.png"
    link.unlink()
    link.symlink_to(hanging_mount / "3.png")
    assert_named(run("train", "--data", str(tiny_set), "--cfg", GRAPH, *TINY, "--stage", stage), link)


@pytest.mark.parametrize("stage", ["off", "copies"])
@pytest.mark.parametrize("name", ["images/train/3.png", "labels/val/1.txt"])
def test_a_file_that_does_not_open(run: Run, tiny_set: Path, stage: str, name: str) -> None:
    with held(tiny_set.parent / name):
        done = run("train", "--data", str(tiny_set), "--cfg", GRAPH, *TINY, "--stage", stage)
    assert_named(done, tiny_set.parent / name)


def test_a_picture_that_does_not_open_any_more_without_loader_processes(tiny_set: Path, started: Started) -> None:
    picture = tiny_set.parent / "images/train/3.png"
    words = (
        "train",
        "--data",
        str(tiny_set),
        "--cfg",
        GRAPH,
        *TINY,
        "--workers",
        "0",
        "--cache",
        "off",
        "--mosaic-window",
        "0",
    )
    with started(*words) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "epoch 1/1000" in line:
                break
        with held(picture):
            rest = process.stderr.read()
        assert process.wait(60) == 65, rest
        assert f"found:  {picture} has not answered for 2 s" in rest


def test_a_picture_to_detect_in_that_does_not_open(run: Run, tiny_set: Path) -> None:
    picture = tiny_set.parent / "images/val/1.png"
    script = """
import sys
from yolov9.data.sources import open_source
from yolov9.read_watch import ReadWatch
with ReadWatch(2), open_source(sys.argv[1]) as source:
    list(source)
"""
    with held(picture):
        assert_named(run(str(picture), program=("-c", script)), picture)


def test_many_quick_files_may_take_longer_together(run: Run) -> None:
    script = """
import time
from yolov9.read_watch import ReadWatch, reading
with ReadWatch(1), reading("folder"):
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        with reading("file"):
            time.sleep(0.01)
"""
    done = run(program=("-c", script))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_process_that_is_paused_waits_for_no_file() -> None:
    script = """
import time
from yolov9.read_watch import ReadWatch, reading
with ReadWatch(1), reading("file"):
    print("reading", flush=True)
    for _ in range(2):
        time.sleep(0.3)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        time.sleep(2)
        process.send_signal(signal.SIGCONT)
        assert process.wait(10) == 0
