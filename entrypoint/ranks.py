"""Starts a trainer per GPU of this machine and ends as they end: `python -m entrypoint.ranks COUNT PROGRAM ARGUMENT…`.

In place of torchrun, which turns every end of a rank, also a stop on request and a user's mistake, into a traceback and
exit code 1. The ranks meet in a file, so there is no port that two jobs could fight for.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from entrypoint.supervise import stop_with_parent
from yolov9.config.environment import child_environment
from yolov9.errors import ExitCode
from yolov9.logs import LOG, setup_logging

GRACE_S = 10.0
"""When a rank has failed, the others get this long to end: they may wait for it in the middle of a sum for ever."""
POLL_S = 0.05
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""All ranks are on this machine; other interfaces may not be there, or be closed to it."""
FINE = (ExitCode.DONE, ExitCode.STOPPED_RESUMABLE)


class RankGroup:
    """The processes of one training.

    Args:
        count: how many.
        command: program and arguments, the same for all.
        meeting_place: file that does not exist yet.
    """

    def __init__(self, count: int, command: Sequence[str], meeting_place: Path) -> None:
        self._ranks: list[subprocess.Popen[bytes]] = []
        self._early: list[int] = []
        self._complete = False
        signal.signal(signal.SIGTERM, self._forward)
        signal.signal(signal.SIGINT, self._forward)
        shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "RENDEZVOUS_FILE": str(meeting_place)}
        for rank in range(count):
            variables = child_environment({**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}, LOOPBACK)
            self._ranks.append(subprocess.Popen(command, env=variables, preexec_fn=stop_with_parent))
        self._complete = True
        for number in self._early:
            self._send(number)

    def wait(self) -> int:
        """Waits for all; returns the exit code of the first that failed (minus its signal), else the largest."""
        failed: int | None = None
        deadline = 0.0
        while any(rank.poll() is None for rank in self._ranks):
            if failed is None:
                failed = self._failure()
                deadline = time.monotonic() + GRACE_S
            elif time.monotonic() > deadline:
                LOG.warning("a rank has failed and others still wait for it: they are ended")
                self._send(signal.SIGKILL)
            time.sleep(POLL_S)
        first = self._failure() if failed is None else failed
        return max(rank.returncode for rank in self._ranks) if first is None else first

    def _failure(self) -> int | None:
        codes = (rank.poll() for rank in self._ranks)
        return next((code for code in codes if code is not None and code not in FINE), None)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        # The second signal makes a rank leave at once, so none may get the same one twice.
        if self._complete:
            self._send(number)
        else:
            self._early.append(number)

    def _send(self, number: int) -> None:
        for rank in self._ranks:
            if rank.poll() is None:
                rank.send_signal(number)


def main(argv: Sequence[str]) -> None:
    """Runs the ranks; this process ends with the exit code or by the signal that they ended with."""
    setup_logging()
    with tempfile.TemporaryDirectory(prefix="yolov9-ranks-") as folder:
        status = RankGroup(int(argv[0]), argv[1:], Path(folder) / "store").wait()
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
