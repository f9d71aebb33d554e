"""What goes wrong in a loader: said once a picture, counted, and the end of the run only when it is too much."""

import os
import signal
from typing import Any

from yolov9.data.loader_settings import LoaderSettings
from yolov9.errors import DataError
from yolov9.logs import LOG

MAX_UNREADABLE_SHARE = 0.1
"""Share of the pictures that may have become unreadable since the scan."""
MIN_UNREADABLE = 3
"""So many may, however few pictures there are."""


class LoaderError(RuntimeError):
    """The loader cannot go on."""


class UnreadablePicturesError(DataError, LoaderError):
    """Too many pictures cannot be read any more: their disk or their files have to be put right."""


def unreadable_pictures(problem: str) -> UnreadablePicturesError:
    """Returns the error that says how many pictures cannot be read, and why the last one."""
    return UnreadablePicturesError(
        found=problem,
        needed="pictures that can be read as long as the run takes",
        remedy="mend the files or their disk, or raise --worker-timeout for a slow one; train --resume goes on",
    )


def no_memory_for_pictures(problem: str) -> UnreadablePicturesError:
    """Returns the error for pictures at which the kernel killed the workers."""
    return UnreadablePicturesError(
        found=f"{problem}; loader processes were killed, as the kernel does when memory runs out",
        needed="memory for a picture in every loader process: its file and at least 3 bytes a pixel",
        remedy="a higher limit (docker run --memory), fewer --workers, or smaller copies of the largest pictures; "
        "train --resume goes on",
    )


def no_stand_in(last: str) -> UnreadablePicturesError:
    """Returns the error for a sample for which picture after picture could not be read, `last` says the last one."""
    return unreadable_pictures(f"too many pictures cannot be read; the last one: {last}")


class FailureLog:
    """Keeps account of pictures and workers that failed."""

    def __init__(self, settings: LoaderSettings) -> None:
        self._settings = settings
        self._unreadable: set[int] = set()
        self._killed_at: set[int] = set()
        """Pictures at which a worker was ended as the kernel does it when memory runs out."""
        self._limit = max(MIN_UNREADABLE, int(len(settings.index) * MAX_UNREADABLE_SHARE))

    def event(self, message: dict[str, Any]) -> None:
        """Takes a message of the server.

        Raises:
            LoaderError: it is one too many, or an error of the program.
        """
        match message["event"]:
            case "failure":
                self.failure(message["picture"], message["text"])
            case "unreadable":
                raise no_stand_in(message["text"])
            case "error":
                raise LoaderError(f"a sample failed while reading {self._name(message['picture'])}\n{message['text']}")
            case "fewer":
                LOG.warning("no more than %d loader workers can be started: %s", message["workers"], message["text"])
            case _:
                self._worker_ended(message)

    def failure(self, picture: int, reason: str) -> None:
        """Notes a picture that cannot be read.

        Raises:
            UnreadablePicturesError: there are too many of them.
        """
        if picture in self._unreadable:
            return
        self._unreadable.add(picture)
        stands_in = "another one stands in" if self._settings.mode == "train" else "it is left out of the scores"
        LOG.warning("cannot read %s: %s; %s", self._name(picture), reason, stands_in)
        if len(self._unreadable) > self._limit:
            mostly_killed = 2 * len(self._unreadable & self._killed_at) > len(self._unreadable)
            refuse = no_memory_for_pictures if mostly_killed else unreadable_pictures
            raise refuse(
                f"{len(self._unreadable)} of {len(self._settings.index)} pictures became unreadable since the scan, "
                f"the last one {self._name(picture)}: {reason}"
            )

    def _worker_ended(self, message: dict[str, Any]) -> None:
        who = f"loader worker {message['worker']} (pid {message['pid']})"
        reading = self._name(message["picture"])
        if message["event"] == "hung":
            LOG.warning(
                "%s hung for %.0f s while reading %s; it was replaced and the picture is left out "
                "(limit: --worker-timeout %.0f)",
                who,
                message["seconds"],
                reading,
                self._settings.timeout_s,
            )
            if message["hopeless"]:
                raise unreadable_pictures(
                    f"nothing could be read any more, the last one was {reading}: the mount hangs"
                )
            self.failure(message["picture"], f"reading takes longer than {self._settings.timeout_s:.0f} s")
            return
        how = _how_it_ended(message["status"])
        killed = os.WIFSIGNALED(message["status"]) and os.WTERMSIG(message["status"]) == signal.SIGKILL
        if killed:
            self._killed_at.add(message["picture"])
        LOG.warning("%s ended (%s) while reading %s; it was replaced and its samples are made again", who, how, reading)
        if message["hopeless"]:
            problem = f"loader workers keep dying, the last one ({how}) while reading {reading}"
            raise no_memory_for_pictures(problem) if killed else LoaderError(problem)

    def _name(self, picture: int) -> str:
        return self._settings.index.path(picture) if picture >= 0 else "no picture"


def _how_it_ended(status: int) -> str:
    if not os.WIFSIGNALED(status):
        return f"exit status {os.waitstatus_to_exitcode(status)}"
    name = signal.Signals(os.WTERMSIG(status)).name
    hints = {
        "SIGKILL": "killed, perhaps because the memory limit was reached",
        "SIGBUS": "a mapped file failed: look at the mounts of data set and cache, and at the free memory",
    }
    return f"{name}: {hints[name]}" if name in hints else name
