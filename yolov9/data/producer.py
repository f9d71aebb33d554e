"""Who makes the samples: a server process with workers, or this process."""

import json
import select
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yolov9
from yolov9.config.environment import child_environment
from yolov9.data.failures import FailureLog, LoaderError, no_stand_in
from yolov9.data.images import ImageError
from yolov9.data.loader_settings import LoaderPlan, LoaderSettings
from yolov9.data.parts import SharedParts
from yolov9.data.ring import Ring
from yolov9.data.worker import Task, run_task
from yolov9.read_watch import ReadWatch, now_reading, reading

MAX_EVENT_BYTES = 65536
"""Longest message of the server."""
CLOSE_S = 15.0
"""How long the server may take to end."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Workers are processes; threads inside them would only get in each other's way."""
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
    "MALLOC_TOP_PAD_": "33554432",
}
"""glibc: a worker keeps the memory of one picture for the next. Otherwise the kernel takes each back and clears it
again when the next one comes, which costs a quarter of a worker's time."""


@dataclass(frozen=True)
class Request:
    """A batch to be made in a slot."""

    slot: int
    generation: int
    """Requests of an earlier generation are not wanted any more."""
    epoch: int
    height: int
    width: int
    positions: range
    """Place in the epoch of each sample."""


class Producer(Protocol):
    """Makes batches that are asked for."""

    def make(self, request: Request) -> None:
        """Asks for a batch; returns at once."""

    def wait(self, request: Request) -> None:
        """Returns when the batch lies in its slot."""

    def is_made(self, request: Request) -> bool:
        """Tells whether the batch lies in its slot, without waiting for it."""

    def cancel(self, generation: int) -> None:
        """Forgets all requests so far; later ones have this generation."""

    def leave_out(self, picture: int, reason: str) -> None:
        """Has another picture stand in for one from now on.

        Raises:
            UnreadablePicturesError: there are too many such pictures.
        """

    def worker_pids(self) -> list[int]:
        """Returns the process ids of workers."""

    def set_workers(self, count: int) -> None:
        """Changes the number of worker processes."""

    def close(self) -> None:
        """Ends everything."""


class InlineProducer:
    """Makes the samples in this process, when they are waited for."""

    def __init__(self, settings: LoaderSettings, plan: LoaderPlan, ring: Ring, ring_fd: int) -> None:
        self._failures = FailureLog(settings)
        self._ring = ring
        parts = SharedParts.create(settings, plan, ring_fd)
        parts.close_descriptors()
        self._make_sample = parts.maker(reading=lambda number: now_reading(settings.index.path(number)))
        self._banned = parts.banned
        self._timeout_s = settings.timeout_s

    def make(self, request: Request) -> None:
        """Does nothing yet."""

    def wait(self, request: Request) -> None:
        """Makes the batch. A picture that does not come ends the process, as there is no other to go on."""
        with ReadWatch(self._timeout_s), reading("the data set"):
            self._make(request)

    def _make(self, request: Request) -> None:
        for row, position in enumerate(request.positions):
            task = Task(request.slot, row, request.height, request.width, request.epoch, position)
            try:
                failures = run_task(task, self._make_sample, self._ring)
            except ImageError as error:
                raise no_stand_in(str(error)) from None
            for number, reason in failures:
                self._failures.failure(number, reason)

    def is_made(self, request: Request) -> bool:
        """It is not before it is waited for."""
        del request
        return False

    def cancel(self, generation: int) -> None:
        """There is nothing to forget."""

    def leave_out(self, picture: int, reason: str) -> None:
        """Notes it."""
        self._banned[picture] = 1
        self._failures.failure(picture, reason)

    def worker_pids(self) -> list[int]:
        """There are none."""
        return []

    def set_workers(self, count: int) -> None:
        """There are none to change."""

    def close(self) -> None:
        """There is nothing to end."""


class ServerProducer:
    """Makes the samples in worker processes; see `server`."""

    def __init__(self, settings: LoaderSettings, plan: LoaderPlan, ring: Ring, ring_fd: int) -> None:
        del ring
        self._failures = FailureLog(settings)
        self._made: set[tuple[int, int]] = set()
        parts = SharedParts.create(settings, plan, ring_fd)
        self._banned = parts.banned
        self._server, self._connection = _start_server(settings, parts)

    def make(self, request: Request) -> None:
        """Sends the request to the server."""
        r, positions = request, request.positions
        # Bounds, not numbers: a message has a largest size, and a batch may have tens of thousands of pictures.
        bounds = [positions.start, positions.stop, positions.step]
        self._send({"make": [r.slot, r.generation, r.epoch, r.height, r.width, bounds]})

    def wait(self, request: Request) -> None:
        """Takes messages of the server until the batch is made."""
        while (request.slot, request.generation) not in self._made:
            self._take_message()
        self._made.discard((request.slot, request.generation))

    def is_made(self, request: Request) -> bool:
        """Takes the messages that are there already."""
        while (request.slot, request.generation) not in self._made:
            if not select.select([self._connection], (), (), 0)[0]:
                return False
            self._take_message()
        return True

    def cancel(self, generation: int) -> None:
        """Tells the server; what was made and not fetched is forgotten."""
        self._made.clear()
        self._send({"cancel": generation})

    def leave_out(self, picture: int, reason: str) -> None:
        """Notes it where all workers see it."""
        self._banned[picture] = 1
        self._failures.failure(picture, reason)

    def worker_pids(self) -> list[int]:
        """Returns the children of the server."""
        pid = self._server.pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        return [int(child) for child in children.read_text().split()]

    def set_workers(self, count: int) -> None:
        """Tells the server."""
        self._send({"workers": count})

    def close(self) -> None:
        """Closes the connection, upon which the server ends its workers and itself."""
        self._connection.close()
        try:
            self._server.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def _take_message(self) -> None:
        message = json.loads(self._receive())
        if "made" in message:
            slot, generation = message["made"]
            self._made.add((slot, generation))
        else:
            self._failures.event(message)

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._connection.send(json.dumps(message).encode())
        except OSError:
            raise self._lost() from None

    def _receive(self) -> bytes:
        try:
            data = self._connection.recv(MAX_EVENT_BYTES)
        except OSError:
            data = b""
        if not data:
            raise self._lost()
        return data

    def _lost(self) -> LoaderError:
        status = self._server.wait(CLOSE_S)
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return LoaderError(f"the loader's server process (pid {self._server.pid}) ended: {how}")


def _start_server(settings: LoaderSettings, parts: SharedParts) -> tuple["subprocess.Popen[bytes]", socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    config = {
        "connection": theirs.fileno(),
        "parts": parts.config,
        "workers": settings.workers,
        "timeout_s": settings.timeout_s,
    }
    package_parent = str(Path(yolov9.__file__).parents[1])
    server = subprocess.Popen(
        [sys.executable, "-m", "yolov9.data.server", json.dumps(config)],
        pass_fds=(theirs.fileno(), *parts.descriptors()),
        stdin=subprocess.DEVNULL,
        env=child_environment({**ONE_THREAD, **KEEP_MEMORY, "PYTHONPATH": package_parent}),
    )
    theirs.close()
    parts.close_descriptors()
    return server, ours
