"""Starts the trainer, forwards signals to it, waits, and explains how it ended. Works as process 1 of a container."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType, TracebackType

from entrypoint.host.memory import OomCounters, read_oom_counters
from entrypoint.host.tree import Tree, open_tree
from entrypoint.units import size_text
from yolov9.config.environment import child_environment
from yolov9.errors import ExitCode
from yolov9.logs import LOG

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
STOPS_BEFORE_KILL = 3
"""The third request to stop ends the trainer at once."""
GIVE_UP_S = 10.0
"""A killed process that is still there is stuck in the kernel (a dead network mount); it is not waited for."""
REAP_POLL_S = 0.02
SIGNAL_EXIT = 128
"""A process ended by signal N is reported as 128 + N, as shells do."""
PR_SET_PDEATHSIG = 1
"""prctl(2): signal that a process gets when its parent ends."""
PR_SET_CHILD_SUBREAPER = 36
"""prctl(2): orphans of our children become our children, so that they can be ended and reaped."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a child ended."""

    exit_code: int
    """0 to 255; 128 + N for signal N, but 75 for a stop on request where there was nothing to save yet."""
    signal_number: int | None
    oom_kills: int
    """Processes of this container that the kernel killed for memory meanwhile."""
    oom: OomCounters


def supervise(
    command: Sequence[str],
    variables: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Ending:
    """Runs a program in a process group of its own until it ends; nothing of the group is left behind.

    Args:
        command: program and arguments.
        variables: changes to the environment.
        defaults: variables that are set where there is none of that name.
    """
    tree = open_tree()
    before = read_oom_counters(tree).kills or 0
    _adopt_orphans()
    with _Forwarding() as forwarding:
        # A process of a background group must not read the terminal.
        child = subprocess.Popen(
            command,
            env=child_environment(variables or {}, defaults),
            process_group=0,
            stdin=subprocess.DEVNULL,
            preexec_fn=stop_with_parent,
        )
        forwarding.start(child.pid)
        status = _wait(child.pid)
        child.returncode = status  # Reaped here, so Popen must not wait for it again.
    _end_group(child.pid)
    return _ending(tree, status, before, stop_requested=forwarding.stops > 0)


def explain(ending: Ending, *, suspects: Sequence[str] = ()) -> None:
    """Logs how a trainer ended, unless it said so itself.

    Args:
        ending: from `supervise`.
        suspects: lines about /dev/shm and mounts, shown after a bus error.
    """
    if ending.signal_number is None:
        return
    name = signal.Signals(ending.signal_number).name
    if ending.exit_code == ExitCode.STOPPED_RESUMABLE:
        LOG.warning("ended on request (%s) where there was nothing to save", name)
        return
    LOG.error("the trainer was ended by signal %d (%s)", ending.signal_number, name)
    if ending.signal_number == signal.SIGKILL:
        _explain_kill(ending)
    elif ending.signal_number == signal.SIGBUS:
        LOG.error("a mapped file could not be read or written; the suspects are:")
        for line in suspects:
            LOG.error("  %s", line)
    elif ending.signal_number == signal.SIGSEGV:
        LOG.error("a crash inside a library; please report it with the lines above")


def _explain_kill(ending: Ending) -> None:
    limit, peak = size_text(ending.oom.limit_bytes), size_text(ending.oom.peak_bytes)
    if ending.oom_kills:
        LOG.error("found:  the kernel killed it for lack of memory: limit %s, peak %s", limit, peak)
        LOG.error("needed: more memory than the container may use")
        LOG.error("type:   a higher docker run --memory, a smaller --batch, fewer --workers, or no --cache ram")
        return
    LOG.error(
        "nothing was counted as out of memory here (limit %s, peak %s): docker kill, the end of the stop time "
        "(docker stop -t SECONDS), or the host ran out of memory (dmesg on the host tells)",
        limit,
        peak,
    )


class _Forwarding:
    """Passes signals on to the trainer while it runs; restores the former handlers at the end."""

    def __init__(self) -> None:
        self.stops = 0
        self._pid: int | None = None
        self._early: list[int] = []
        self._former: dict[int, object] = {}

    def __enter__(self) -> "_Forwarding":
        for number in FORWARDED:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # nohup: the trainer inherits it.
            self._former[number] = signal.signal(number, self._forward)
        return self

    def start(self, pid: int) -> None:
        """Names the trainer; signals that came before are passed on now."""
        self._pid = pid
        for number in self._early:
            self._send(number)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal itself returned

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            # A closed terminal is a stop. Shell and kernel both tell of it, which must not count as impatience.
            if self.stops:
                return
            number = signal.SIGTERM
        if number in (signal.SIGTERM, signal.SIGINT):
            self.stops += 1
        if self._pid is None:
            self._early.append(number)
        else:
            self._send(number)

    def _send(self, number: int) -> None:
        """Only the trainer gets the signal: its loader processes must live until the current step is saved."""
        assert self._pid is not None
        try:
            if self.stops >= STOPS_BEFORE_KILL:
                os.killpg(self._pid, signal.SIGKILL)
            else:
                os.kill(self._pid, number)
        except ProcessLookupError:
            pass


def _adopt_orphans() -> None:
    """Best effort: without it only process 1 reaps orphans."""
    _process_control(PR_SET_CHILD_SUBREAPER, 1)


def stop_with_parent() -> None:
    """Runs in a child: a trainer whose supervisor was killed saves and ends, so that it does not keep the GPU."""
    _process_control(PR_SET_PDEATHSIG, signal.SIGTERM)


def _process_control(what: int, value: int) -> None:
    try:
        ctypes.CDLL(None).prctl(what, value, 0, 0, 0)
    except (OSError, AttributeError):
        LOG.debug("prctl %d is not offered by this system", what)


def _wait(pid: int) -> int:
    """Waits for one child and reaps all others that end meanwhile; returns its exit code or minus its signal."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def _end_group(pid: int) -> None:
    """Ends what the trainer left running, and reaps it."""
    reap_group(pid, 0)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    if reap_group(pid, GIVE_UP_S):
        LOG.warning("processes that the trainer left behind were ended")
    else:
        LOG.error("processes that the trainer left behind cannot be ended: they wait for a dead mount or device")


def reap_group(pid: int, limit_s: float) -> bool:
    """Reaps the ended children of a process group; returns whether none is left within the time."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            ended, _ = os.waitpid(-pid, os.WNOHANG)
        except ChildProcessError:
            return True
        if not ended:
            if time.monotonic() >= deadline:
                return False
            time.sleep(REAP_POLL_S)


def _ending(tree: Tree, status: int, kills_before: int, *, stop_requested: bool) -> Ending:
    counters = read_oom_counters(tree)
    exit_code = status if status >= 0 else SIGNAL_EXIT - status
    if stop_requested and -status in (signal.SIGTERM, signal.SIGINT):
        exit_code = ExitCode.STOPPED_RESUMABLE
    return Ending(
        exit_code=exit_code,
        signal_number=-status if status < 0 else None,
        oom_kills=max(0, (counters.kills or 0) - kills_before),
        oom=counters,
    )
