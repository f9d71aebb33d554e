"""Reports about CPU limits, threads and workers: P04, P05, P06."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.plan import Plan
from yolov9.data import DatasetIndex, load_dataset_config
from yolov9.data.failures import MIN_UNREADABLE, FailureLog
from yolov9.data.loader import LoaderError, LoaderSettings, open_loader
from yolov9.errors import DataError
from yolov9.logs import LOG

PlanOn = Callable[..., Plan]
GPU = {"name": "NVIDIA A10G", "total": 24 << 30, "free": 23 << 30, "capability": [8, 6]}
V1_CPU = {
    "proc/self/cgroup": "3:cpu,cpuacct:/docker/0123\n",
    "proc/self/mountinfo": "40 39 0:30 /docker/0123 /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
}
QUOTA_FILE = "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"


@pytest.mark.parametrize(
    ("files", "affinity", "workers"),
    [
        ({"sys/fs/cgroup/cpu.max": "200000 100000"}, 64, 1),
        ({"sys/fs/cgroup/cpu.max": "max 100000"}, 64, 16),
        ({"sys/fs/cgroup/cpu.max": "800000 100000"}, 4, 3),
        ({"sys/fs/cgroup/cpu.max": "50000 100000"}, 64, 1),
        ({**V1_CPU, QUOTA_FILE: "200000"}, 64, 1),
        ({**V1_CPU, QUOTA_FILE: "-1"}, 8, 7),
        ({"proc/self/cgroup": ""}, 8, 7),
    ],
)
def test_p04_workers_follow_the_tightest_limit_of_the_container(
    plan_on: PlanOn, files: dict[str, str], affinity: int, workers: int
) -> None:
    plan = plan_on(files=files, affinity=affinity, gpus=[GPU], driver="580.65")
    assert plan.value("workers") == workers
    assert plan["workers"].source
    asked = plan_on("--workers 8", files=files, affinity=affinity, gpus=[GPU], driver="580.65")
    assert asked.value("workers") == min(8, max(workers, 1))


def test_p04_jobs_divide_the_cpus(plan_on: PlanOn) -> None:
    assert plan_on("--jobs 2", affinity=8, gpus=[GPU], driver="580.65").value("workers") == 3


def test_p05_threads_follow_the_limit_not_the_host_and_the_users_number_wins(plan_on: PlanOn) -> None:
    files = {"sys/fs/cgroup/cpu.max": "200000 100000"}
    assert plan_on("--device cpu", files=files).environment["OMP_NUM_THREADS"] == "2"
    chosen = plan_on("--device cpu", files=files, variables={"OMP_NUM_THREADS": "5"})
    assert chosen.environment["OMP_NUM_THREADS"] == "5"


@pytest.fixture
def settings(tiny_set: Path) -> LoaderSettings:
    index = DatasetIndex.build(load_dataset_config(str(tiny_set)), "train", cache_dir=None)
    return LoaderSettings(index=index, imgsz=64, batch_size=4, workers=2, timeout_s=0.5)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(LOG, "propagate", True)
    caplog.set_level(logging.INFO)
    return caplog


def test_p06_a_worker_that_sleeps_is_named_with_its_picture_and_the_limit(
    settings: LoaderSettings, tiny_set: Path, said: pytest.LogCaptureFixture
) -> None:
    picture = tiny_set.parent / "images" / "train" / "3.png"
    picture.unlink()
    os.mkfifo(picture)  # Reading a pipe that nobody writes to takes for ever.
    with open_loader(settings) as loader:
        for batch in loader.epoch(0):
            batch.release()
    assert "hung" in said.text
    assert str(picture) in said.text
    assert "limit: --worker-timeout" in said.text


@pytest.mark.parametrize(("status", "words"), [(1 << 8, "exit status 1"), (9, "SIGKILL"), (7, "mounts of data set")])
def test_p06_a_worker_that_ends_is_said_with_its_status(
    settings: LoaderSettings, said: pytest.LogCaptureFixture, status: int, words: str
) -> None:
    log = FailureLog(settings)
    log.event({"event": "died", "worker": 0, "pid": 77, "picture": 3, "status": status, "hopeless": False})
    assert words in said.text
    assert "3.png" in said.text


def test_pictures_at_which_workers_are_killed_end_the_run_with_words_about_memory(settings: LoaderSettings) -> None:
    remedies = []
    for killed in (MIN_UNREADABLE, 1):
        log = FailureLog(settings)
        for picture in range(killed):
            log.event({"event": "died", "worker": 0, "pid": 77, "picture": picture, "status": 9, "hopeless": False})
        for picture in range(MIN_UNREADABLE):
            log.failure(picture, "left out")
        with pytest.raises(DataError) as caught:
            log.failure(MIN_UNREADABLE, "left out")
        remedies.append("--memory" in caught.value.remedy)
    assert remedies == [True, False], "one of them says nothing about the others"


@pytest.mark.parametrize("workers", [0, 2])
def test_p06_pictures_that_cannot_be_read_end_the_run_with_their_path(
    settings: LoaderSettings, tiny_set: Path, workers: int
) -> None:
    for picture in (tiny_set.parent / "images" / "train").iterdir():
        picture.write_bytes(b"broken after the scan")
    broken = LoaderSettings(index=settings.index, imgsz=64, batch_size=4, workers=workers)
    with open_loader(broken) as loader, pytest.raises(LoaderError, match=r"images/train/\d\.png"):
        next(loader.epoch(0))
