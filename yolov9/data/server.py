"""The loader's server: a small process that forks workers, hands them samples to make, and replaces those that fail.

It is started afresh (not forked from the trainer), so that workers inherit neither torch nor CUDA nor threads. It ends
when the trainer closes the connection or dies, and its workers end with it.

Messages of the connection are JSON objects. From the trainer: {"make": [slot, generation, epoch, height, width,
[first, end, step]]} for the positions of a batch as in `range`, {"cancel": generation}, {"workers": n}. To the trainer:
{"made": [slot, generation]} and {"event": "failure" | "died" | "hung" | "fewer" | "unreadable" | "error", ...}.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import cv2

from yolov9.awake_clock import AwakeClock
from yolov9.data.parts import SharedParts
from yolov9.data.worker import DONE, MAX_ANSWER_BYTES, MAX_WORKERS, NOTHING, TASK, Task, become_worker, parent_is, work

MAX_MESSAGE_BYTES = 4096
"""Longest message from the trainer: a dozen numbers."""
TASKS_AHEAD = 2
"""Tasks that a worker has at a time, so that it never waits for the next one."""
POLL_S = 0.5
"""How often hung workers and a dead trainer are looked for."""
ATTEMPTS = 3
"""When so many workers have died on a sample, the picture that was being read is left out."""
DEATHS_WITHOUT_PROGRESS = 20
"""Deaths in a row, without a finished sample in between, after which it is no use to go on."""
TIMEOUTS_WITHOUT_PROGRESS = 3
"""When workers hang and nothing has been finished for so many times what one may take, the disk or mount hangs."""
GIVE_UP_KILL_S = 10.0
"""A killed worker that is still there is stuck in the kernel (a dead network mount); it is not waited for."""


@dataclass
class Attempt:
    """A task, which batch it belongs to, and how often it was tried."""

    task: Task
    generation: int
    deaths: int = 0


@dataclass
class Worker:
    """A worker process as the server sees it."""

    number: int
    """Place on the board."""
    pid: int
    connection: socket.socket
    doing: deque[Attempt] = field(default_factory=deque)
    """Tasks that it has been sent, the one being worked on first."""
    since: float = 0.0
    """When the first of them began (of the server's clock)."""
    killed_at: float | None = None
    hung_s: float = 0.0
    """How long it had been at the task when it was killed for hanging."""


class Server:
    """Distributes samples over workers.

    Args:
        config: what `producer` sends.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._trainer_pid = os.getppid()
        self._trainer = socket.socket(fileno=config["connection"])
        self._parts = SharedParts(config["parts"])
        self._reading = self._parts.reading
        self._timeout_s = float(config["timeout_s"])
        self._wanted = int(config["workers"])
        self._workers: dict[int, Worker] = {}
        self._workers_are_due = True
        """There are more or fewer than wanted."""
        self._queue: deque[Attempt] = deque()
        self._missing: Counter[int] = Counter()
        self._generation = 0
        self._draining = False
        self._deaths = 0
        self._clock = AwakeClock()
        """Read in every round, so that workers do not count as hung when all of the job was paused."""
        self._looked_at = 0.0
        """When hung workers and a dead trainer were last looked for (of the clock)."""
        self._stuck_since: float | None = None
        """Since when nothing was finished while workers hung (of the clock)."""
        self._poll = select.poll()
        self._poll.register(self._trainer, select.POLLIN)

    def run(self) -> None:
        """Serves until the trainer closes the connection or is gone."""
        try:
            while True:
                if self._workers_are_due:
                    self._keep_workers()
                for fd, _ in self._poll.poll(POLL_S * 1000):
                    if fd != self._trainer.fileno():
                        self._hear(self._workers[fd])
                    elif not self._obey():
                        return
                now = self._clock.now()
                if now - self._looked_at >= POLL_S:
                    self._looked_at = now
                    self._look_for_hung(now)
                    if not parent_is(self._trainer_pid):
                        return
        except (BrokenPipeError, ConnectionResetError):
            return
        finally:
            self._end_workers()

    def _obey(self) -> bool:
        """Takes one message of the trainer; False when there are no more."""
        data = self._trainer.recv(MAX_MESSAGE_BYTES)
        if not data:
            return False
        message = json.loads(data)
        if "make" in message:
            slot, generation, epoch, height, width, bounds = message["make"]
            positions = range(*bounds)
            self._missing[slot] = len(positions)
            for row, position in enumerate(positions):
                self._queue.append(Attempt(Task(slot, row, height, width, epoch, position), generation))
        elif "cancel" in message:
            self._generation = message["cancel"]
            self._queue.clear()
            self._missing.clear()
            # What is being made may lie in a slot that is asked for again: first all of it must be done.
            self._draining = any(worker.doing for worker in self._workers.values())
        else:
            self._wanted = message["workers"]
            self._workers_are_due = True
        self._distribute()
        return True

    def _distribute(self) -> None:
        if self._draining:
            return
        for depth in range(TASKS_AHEAD):
            for worker in self._workers.values():
                if not self._queue:
                    return
                if len(worker.doing) == depth and worker.killed_at is None:
                    self._give(worker, self._queue.popleft())

    def _give(self, worker: Worker, attempt: Attempt) -> None:
        if not worker.doing:
            worker.since = self._clock.now()
        worker.doing.append(attempt)
        with contextlib.suppress(OSError):  # it has just died, which its end of the connection will tell
            worker.connection.send(TASK.pack(*attempt.task))

    def _hear(self, worker: Worker) -> None:
        """Takes one answer of a worker, or its end."""
        try:
            answer = worker.connection.recv(MAX_ANSWER_BYTES)
        except ConnectionResetError:
            answer = b""
        if not answer:
            self._bury(worker)
            return
        attempt = worker.doing.popleft()
        worker.since = self._clock.now()
        self._deaths = 0
        self._stuck_since = None
        if answer != DONE:
            reply = json.loads(answer)
            for number, reason in reply.get("failures", ()):
                self._tell({"event": "failure", "picture": number, "text": reason})
            if "unreadable" in reply:
                self._tell({"event": "unreadable", "text": reply["unreadable"]})
            if "error" in reply:
                self._tell({"event": "error", "text": reply["error"], "picture": int(self._reading[worker.number])})
        self._count(attempt)
        if self._draining:
            self._draining = any(w.doing for w in self._workers.values())
            self._distribute()
        elif self._queue and worker.killed_at is None:  # only then all others have their tasks
            self._give(worker, self._queue.popleft())

    def _count(self, attempt: Attempt) -> None:
        if attempt.generation < self._generation:
            return
        slot = attempt.task.slot
        self._missing[slot] -= 1
        if self._missing[slot] == 0:
            del self._missing[slot]
            self._tell({"made": [slot, attempt.generation]})

    def _bury(self, worker: Worker, *, stuck: bool = False) -> None:
        """Gives a dead (or stuck) worker's tasks to others and says how it ended."""
        self._workers_are_due = True
        del self._workers[worker.connection.fileno()]
        self._poll.unregister(worker.connection)
        worker.connection.close()
        _, status = os.waitpid(worker.pid, os.WNOHANG if stuck else 0)
        if not worker.doing and worker.killed_at is not None:
            return  # it was told to end
        picture = int(self._reading[worker.number])
        self._reading[worker.number] = NOTHING
        self._deaths += 1
        if worker.doing:
            worker.doing[0].deaths += 1
            if picture != NOTHING and (worker.hung_s or worker.doing[0].deaths >= ATTEMPTS):
                self._parts.banned[picture] = 1
        current = [attempt for attempt in worker.doing if attempt.generation >= self._generation]
        self._queue.extendleft(reversed(current))
        kind = "hung" if worker.hung_s else "died"
        facts = {"worker": worker.number, "pid": worker.pid, "status": status, "seconds": worker.hung_s}
        self._tell({"event": kind, "picture": picture, **facts, "hopeless": self._is_hopeless()})
        self._draining = self._draining and any(w.doing for w in self._workers.values())

    def _is_hopeless(self) -> bool:
        if self._deaths >= DEATHS_WITHOUT_PROGRESS:
            return True
        stuck = self._stuck_since
        return stuck is not None and self._clock.now() - stuck > TIMEOUTS_WITHOUT_PROGRESS * self._timeout_s

    def _look_for_hung(self, now: float) -> None:
        for worker in list(self._workers.values()):
            if worker.killed_at is not None and now - worker.killed_at > GIVE_UP_KILL_S:
                self._bury(worker, stuck=True)
            elif worker.killed_at is None and worker.doing and now - worker.since > self._timeout_s:
                worker.hung_s = now - worker.since
                self._stuck_since = worker.since if self._stuck_since is None else self._stuck_since
                worker.killed_at = now
                self._workers_are_due = True
                os.kill(worker.pid, signal.SIGKILL)

    def _keep_workers(self) -> None:
        """Forks or ends workers until there are as many as wanted; those too many end when they have nothing to do."""
        active = [worker for worker in self._workers.values() if worker.killed_at is None]
        try:
            for _ in range(self._wanted - len(active)):
                self._fork()
        except OSError as error:  # a limit on processes or memory
            if not self._workers:
                raise
            self._wanted = len(self._workers)
            self._tell({"event": "fewer", "workers": self._wanted, "text": str(error)})
        surplus = active[self._wanted :]
        self._workers_are_due = bool(surplus)
        for worker in surplus:
            if not worker.doing:
                worker.killed_at = self._clock.now()
                os.kill(worker.pid, signal.SIGKILL)
        self._distribute()

    def _fork(self) -> None:
        taken = {worker.number for worker in self._workers.values()}
        number = next(n for n in range(MAX_WORKERS) if n not in taken)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                ours.close()
                self._be_worker(number, theirs, server_pid)
            except BaseException:  # nothing of the server may run in the worker, whatever happens
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        theirs.close()
        self._workers[ours.fileno()] = Worker(number, pid, ours)
        self._poll.register(ours, select.POLLIN)

    def _be_worker(self, number: int, tasks: socket.socket, server_pid: int) -> None:
        become_worker()
        if not parent_is(server_pid):
            return
        self._trainer.close()
        for other in self._workers.values():
            other.connection.close()
        place = self._reading[number : number + 1]
        work(tasks, self._parts.maker(reading=lambda picture: place.fill(picture)), self._parts.ring, place)

    def _end_workers(self) -> None:
        for worker in self._workers.values():
            os.kill(worker.pid, signal.SIGKILL)
        left = {worker.pid for worker in self._workers.values()}
        deadline = time.monotonic() + GIVE_UP_KILL_S
        while left and time.monotonic() < deadline:
            left -= {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0]}
            time.sleep(0.001)

    def _tell(self, message: dict[str, Any]) -> None:
        self._trainer.send(json.dumps(message).encode())


def main() -> None:
    """Runs the server with the configuration in the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C and stop requests are for the trainer, which then closes us
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    cv2.setNumThreads(1)
    server = Server(json.loads(sys.argv[1]))
    gc.collect()
    server.run()


if __name__ == "__main__":
    main()
