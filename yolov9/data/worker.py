"""A worker: takes tasks from the server and writes finished samples into the ring. numpy and OpenCV only."""

import gc
import json
import os
import socket
import struct
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from yolov9.child_process import die_with_parent
from yolov9.data.images import ImageError
from yolov9.data.ring import Ring
from yolov9.data.sample import Sample

TASK = struct.Struct("<IIIIIQ")
"""How a `Task` is sent."""
DONE = b"+"
"""Answer to a task that went well; anything else is a JSON object with `failures`, `unreadable` or `error`."""
MAX_ANSWER_BYTES = 65536
"""Longest answer."""
MAX_TRACEBACK = 8000
"""Characters of a traceback that are sent."""
MAX_WORKERS = 512
"""Most workers of one loader."""
NOTHING = -1
"""In the list of pictures being read: this worker reads none."""


class Task(NamedTuple):
    """One sample to be made."""

    slot: int
    row: int
    height: int
    width: int
    epoch: int
    position: int


MakeSample = Callable[[Task], Sample]
"""Makes the pixels of a sample, or a drawing of it, in its place of the ring, and returns the rest."""


def run_task(task: Task, make: MakeSample, ring: Ring) -> list[tuple[int, str]]:
    """Makes one sample in its place of the ring and returns the pictures that could not be read.

    Raises:
        ImageError: see `SampleMaker.make`.
    """
    sample = make(task)
    ring.write(task.slot, task.row, sample)
    return sample.failures


def work(tasks: socket.socket, make: MakeSample, ring: Ring, reading: NDArray[np.int64]) -> None:
    """Serves tasks until the other end closes.

    Args:
        tasks: connection to the server, one message a task.
        make: makes the samples.
        ring: where they go.
        reading: (1,) the number of the picture being read, for the server to see.
    """
    while message := tasks.recv(TASK.size):
        answer = _answer(Task(*TASK.unpack(message)), make, ring)
        reading[0] = NOTHING
        tasks.send(answer)


def _answer(task: Task, make: MakeSample, ring: Ring) -> bytes:
    reply: dict[str, Any] = {}
    try:
        failures = run_task(task, make, ring)
        if not failures:
            return DONE
        reply["failures"] = failures
    except ImageError as error:
        reply["unreadable"] = str(error)
    except Exception:
        # Not a fault of a picture, which is an ImageError, but of the program: it must be seen, not worked around.
        reply["error"] = traceback.format_exc(limit=-8)[-MAX_TRACEBACK:]
    return json.dumps(reply).encode()


def become_worker() -> None:
    """Sets up the process after the fork: dies with its parent, leaves signals to it, uses one thread."""
    die_with_parent()
    gc.freeze()  # the collector would write to, and so copy, every page that is shared with the server
    cv2.setNumThreads(1)
    cv2.ocl.setUseOpenCL(False)


def parent_is(pid: int) -> bool:
    """False when the parent ended before `become_worker` could ask to be told."""
    return os.getppid() == pid
