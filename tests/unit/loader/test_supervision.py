"""What the loader survives, with real processes, signals and files."""

import contextlib
import gc
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from itertools import chain
from pathlib import Path

import cv2
import numpy as np
import pytest

from yolov9.data.failures import LoaderError
from yolov9.data.loader import open_loader
from yolov9.data.server import TIMEOUTS_WITHOUT_PROGRESS
from yolov9.errors import DataError


def kill_one(pids, turn):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pids[turn % len(pids)], signal.SIGKILL)


def wait_until_gone(pids):
    """Waits until processes that are not our children have ended (by their pidfd) and their parent has noticed."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            fd = os.pidfd_open(pid)
            readable, _, _ = select.select([fd], [], [], 10)
            os.close(fd)
            assert readable, f"process {pid} is still there"
        deadline = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < deadline, f"nobody has reaped process {pid}"
            os.sched_yield()


@pytest.mark.parametrize("window", [0, 5])
def test_killed_workers_are_replaced_and_batches_stay_the_same(settings, contents, caplog, window):
    with open_loader(settings(workers=0, mosaic_window=window)) as loader:
        expected = [contents(loader.epoch(epoch)) for epoch in range(3)]
    with open_loader(settings(workers=3, slots=2, mosaic_window=window)) as loader:
        found = []
        for epoch in range(3):
            batches = []
            for turn, batch in enumerate(loader.epoch(epoch)):
                if loader.worker_pids:
                    kill_one(loader.worker_pids, turn)
                batches += contents([batch])
            found.append(batches)
        assert found == expected
    assert "replaced" in caplog.text
    assert "SIGKILL" in caplog.text


def test_a_limit_on_what_the_server_may_start_leaves_it_the_workers_it_has(settings, contents, children, caplog):
    with open_loader(settings(workers=0)) as loader:
        expected = contents(loader.epoch(0))
    with open_loader(settings(workers=1)) as loader:
        batches = loader.epoch(0)
        found = contents([next(batches)])
        server = next(pid for pid in children() if pid not in loader.worker_pids)
        in_use = {int(fd.name) for fd in Path(f"/proc/{server}/fd").iterdir()}
        # A new worker takes one number for good and one more while it starts, so three leave room for two.
        highest = [number for number in range(len(in_use) + 3) if number not in in_use][2]
        resource.prlimit(server, resource.RLIMIT_NOFILE, (highest + 1, highest + 1))
        loader.set_workers(9)
        found += contents(batches)
        assert len(loader.worker_pids) == 3
    assert found == expected
    assert "no more than 3 loader workers can be started: " in caplog.text


def test_close_leaves_no_process(settings, children):
    loader = open_loader(settings())
    next(loader.epoch(0)).release()
    below = children()
    assert len(below) == 3
    loader.close()
    assert children() == []
    wait_until_gone(below)
    loader.close()


def test_an_error_in_the_training_loop_leaves_no_process(settings, children):
    below = []

    def train():
        with open_loader(settings()) as loader:
            for _ in loader.epoch(0):
                below.extend(children())
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert below
    assert children() == []
    wait_until_gone(below)


TRAINER = """
import json, sys
import numpy as np
from itertools import chain
from pathlib import Path
from yolov9.data.index import DatasetIndex
from yolov9.data.loader import LoaderSettings, open_loader

index = DatasetIndex.from_arrays(dict(np.load(sys.argv[1])))
loader = open_loader(LoaderSettings(index=index, imgsz=64, batch_size=2, workers=2))
batch = next(loader.epoch(0))
(server,) = Path("/proc/thread-self/children").read_text().split()
print(json.dumps([int(server), *loader.worker_pids]), flush=True)
input()
"""


def test_a_killed_trainer_leaves_no_process(boxes_index, tmp_path):
    """The trainer gets SIGKILL, so nothing of it can clean up."""
    index_file = tmp_path / "index.npz"
    np.savez(index_file, **boxes_index.arrays())
    command = [sys.executable, "-c", TRAINER, str(index_file)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=Path(__file__).parents[3]) as trainer:
        assert trainer.stdout is not None
        pids = json.loads(trainer.stdout.readline())
        assert len(pids) == 3
        trainer.kill()
    wait_until_gone(pids)


def test_a_killed_server_is_said_and_leaves_no_worker(settings, children):
    with open_loader(settings()) as loader:
        batches = loader.epoch(0)
        next(batches).release()
        server, *workers = children()
        os.kill(server, signal.SIGKILL)
        # The rest of this epoch may have been made before the kill.
        rest = chain(batches, loader.epoch(1))
        with pytest.raises(LoaderError, match="SIGKILL"):
            list(released(rest))
    wait_until_gone(workers)


def test_p06_a_hung_worker_is_named_with_its_file_and_the_epoch_goes_on(new_data_set, settings, caplog):
    index, images = new_data_set(12)
    (images / "p002.png").unlink()
    os.mkfifo(images / "p002.png")  # reading a pipe that nobody writes to takes for ever
    with open_loader(settings(index=index, timeout_s=0.4)) as loader:
        count = 0
        for batch in loader.epoch(0):
            count += len(batch.images)
            batch.release()
    assert count == 12
    assert "hung" in caplog.text
    assert "p002.png" in caplog.text
    assert "--worker-timeout" in caplog.text


def test_a_job_that_was_paused_has_no_hung_workers(new_data_set, settings, children, caplog):
    """As `docker pause` does it: for longer than the job would wait for a mount, while a picture is being read."""
    timeout_s = 1.6
    index, images = new_data_set(12)
    picture, pipe_path = (images / "p002.png").rename(images.parent / "picture.png"), images / "p002.png"
    os.mkfifo(pipe_path)
    with open_loader(settings(index=index, timeout_s=timeout_s, workers=1)) as loader:
        batches = loader.epoch(0)
        reading = next(batches)
        with pipe_path.open("wb") as pipe:  # waits for the worker that reads it
            paused = children()
            for pid in paused:
                os.kill(pid, signal.SIGSTOP)
            time.sleep((TIMEOUTS_WITHOUT_PROGRESS + 0.2) * timeout_s)
            for pid in paused:
                os.kill(pid, signal.SIGCONT)
            pipe.write(picture.read_bytes())
            picture.rename(pipe_path)
        count = len(reading.images) + sum(len(batch.images) for batch in released(batches))
    assert count == 12
    assert "hung" not in caplog.text


def test_p06_a_mount_that_hangs_ends_the_run_long_before_each_picture_was_waited_for(new_data_set, settings):
    index, images = new_data_set(100)
    for path in list(images.iterdir()):
        path.unlink()
        os.mkfifo(path)
    hangs = pytest.raises(DataError, match=r"nothing could be read any more, .*p\d+\.png: the mount hangs")
    with open_loader(settings(index=index, timeout_s=0.4)) as loader, hangs:
        list(released(loader.epoch(0)))


def test_p06_a_picture_that_broke_after_the_scan_is_named_once_and_the_epoch_goes_on(new_data_set, settings, caplog):
    index, images = new_data_set(12)
    (images / "p002.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with open_loader(settings(index=index)) as loader:
        for epoch in range(2):
            assert sum(len(batch.images) for batch in released(loader.epoch(epoch))) == 12
    assert caplog.text.count("p002.png") == 1


def released(batches):
    for batch in batches:
        yield batch
        batch.release()


@pytest.mark.parametrize("workers", [0, 2])
def test_too_many_unreadable_pictures_end_the_run_with_the_name_of_one(new_data_set, settings, workers):
    index, images = new_data_set(12)
    for number in range(6):
        (images / f"p00{number}.png").unlink()
    named = pytest.raises(LoaderError, match=r"4 of 12 pictures became unreadable.*p00\d\.png")
    with open_loader(settings(index=index, workers=workers)) as loader, named as raised:
        list(released(loader.epoch(0)))
    assert isinstance(raised.value, DataError), "something the user can put right ends with 65 and no traceback"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_set_that_is_gone_is_something_the_user_can_put_right(new_data_set, settings, workers):
    """As when the share that it lies on is no longer there."""
    index, images = new_data_set(12)
    for path in list(images.iterdir()):
        path.unlink()
    with open_loader(settings(index=index, workers=workers)) as loader, pytest.raises(DataError, match=r"p\d+\.png"):
        list(released(loader.epoch(0)))


def test_workers_that_always_die_end_the_run(new_data_set, settings):
    """No sample is ever finished: each picture is a pipe without a writer, and each worker is killed while it waits."""
    index, images = new_data_set(12)
    for path in list(images.iterdir()):
        path.unlink()
        os.mkfifo(path)
    finished = threading.Event()

    def kill_all(loader):
        while not finished.is_set():
            for pid in loader.worker_pids:
                kill_one([pid], 0)

    with open_loader(settings(index=index)) as loader:
        killer = threading.Thread(target=kill_all, args=(loader,))
        killer.start()
        try:
            with pytest.raises(LoaderError, match="keep dying"):
                next(loader.epoch(0))
        finally:
            finished.set()
            killer.join()


def test_p05_threads_of_the_parent_do_not_matter_and_workers_have_one_thread(settings, children):
    cv2.setNumThreads(4)
    cv2.resize(np.zeros((2000, 2000, 3), np.uint8), (3000, 3000))
    with open_loader(settings()) as loader:
        for batch in loader.epoch(0):
            batch.release()
        threads = [len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in children()]
    assert threads == [1, 1, 1]


def test_workers_import_neither_torch_nor_cuda(settings):
    with open_loader(settings()) as loader:
        next(loader.epoch(0)).release()
        for pid in loader.worker_pids:
            mapped = Path(f"/proc/{pid}/maps").read_text()
            assert "cv2" in mapped
            assert "torch" not in mapped
            assert "libcuda" not in mapped


def test_nothing_lies_in_dev_shm(settings, children):
    with open_loader(settings()) as loader:
        next(loader.epoch(0)).release()
        for pid in [os.getpid(), *children()]:
            assert "/dev/shm" not in Path(f"/proc/{pid}/maps").read_text()
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):  # the one that lists the folder
                    assert not str(link.readlink()).startswith("/dev/shm")


def test_p13_no_more_processes_than_planned_when_mosaic_is_switched_off(settings, children):
    with open_loader(settings(epochs=4, close_mosaic_from=2)) as loader:
        counts, mosaic = [], []
        for epoch in range(4):
            for batch in released(loader.epoch(epoch)):
                counts.append(len(children()))
                mosaic.append(bool(batch.mosaics.all()))
    assert set(counts) == {3}
    assert mosaic == [True] * 6 + [False] * 6


def test_a_validation_loader_has_workers_only_while_it_validates(settings, children):
    with open_loader(settings(mode="val")) as loader:
        for epoch in range(2):
            workers = set()
            for _ in released(loader.epoch(epoch)):
                workers.update(loader.worker_pids)
            assert len(workers) == 2
            wait_until_gone(workers)
            assert len(children()) == 1


def test_the_memory_of_the_ring_is_given_back(settings):
    def mapped():
        return Path("/proc/self/maps").read_text().count("memfd:yolov9-ring")

    gc.collect()  # What other tests have left would go in the middle of this one.
    before = mapped()
    with open_loader(settings(workers=1)) as loader:
        next(loader.epoch(0)).release()
        assert mapped() == before + 1
    del loader
    assert mapped() == before


def private_bytes(pid):
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def test_p09_private_memory_of_workers_does_not_grow_with_the_index(settings, boxes_index, repeated):
    many = repeated(boxes_index, 25_000)
    with open_loader(settings(index=many, imgsz=32, batch_size=40, workers=8, slots=8)) as loader:
        batches = released(loader.epoch(0))
        for _ in range(8):
            next(batches)
        begin = [private_bytes(pid) for pid in loader.worker_pids]
        for _ in range(30):
            next(batches)
        grown = [private_bytes(pid) - start for pid, start in zip(loader.worker_pids, begin, strict=True)]
    assert max(begin) < 60e6
    assert sum(grown) < 20e6
