"""What the program says: one log (level, local time with offset, no colours) to standard error, results to standard
output."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from yolov9.errors import ExitCode, UserError

LOG = logging.getLogger("yolov9")
LINES_KEPT = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
"""Control characters but tab and line feed, as text: a file's name must not move the cursor or colour the terminal."""
CONTROLS = {**LINES_KEPT, ord("\n"): "\\n"}
"""Line feeds too: a name with one in it must not look like a line of its own."""


class LineFormatter(logging.Formatter):
    """Shows control characters as text; only a traceback has more than one line."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Returns time, level and message of a record."""
        return super().formatMessage(record).translate(CONTROLS)

    def formatException(self, ei: Any) -> str:
        """Returns a traceback."""
        return super().formatException(ei).translate(LINES_KEPT)


def setup_logging(*, quiet: bool = False) -> None:
    """Sends the program's log to standard error, a line a record, flushed at once.

    Args:
        quiet: only warnings and errors are shown.
    """
    _open_closed_streams()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    LOG.handlers[:] = [handler]
    LOG.setLevel(logging.WARNING if quiet else logging.INFO)
    LOG.propagate = False


def _open_closed_streams() -> None:
    """A program that is started without standard output, as by `>&-`, writes it nowhere; no file gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # The lowest free number, which is that of the stream.
            os.set_inheritable(descriptor, descriptor == number)
            setattr(sys, name, os.fdopen(descriptor, "w" if number else "r", encoding="utf-8", closefd=False))


def show_result(line: str) -> None:
    """Prints a line of what a command was asked for to standard output, also with `--quiet`.

    Raises:
        UserError: it is a file on a full disk, or the like.
    """
    try:
        with _output_errors():
            print(line.translate(CONTROLS), flush=True)
    except BrokenPipeError:
        drop_output()


def show_text(text: str) -> None:
    """Prints lines that are what a command was asked for, such as a table or JSON, to standard output.

    Raises:
        BrokenPipeError: nobody reads it any more.
        UserError: it is a file on a full disk, or the like.
    """
    with _output_errors():
        print(text, flush=True)


def flush_output() -> None:
    """Writes what was printed, while errors of it can be caught; Python does it again when it ends.

    Raises:
        BrokenPipeError: nobody reads it any more.
        UserError: it cannot be written.
    """
    with _output_errors():
        sys.stdout.flush()


@contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        raise UserError(
            found=f"standard output could not be written: {error.strerror}",
            needed="a terminal, a pipe, or a file with free space",
            remedy="free some space, or send the output elsewhere",
            exit_code=ExitCode.OUTPUT_NOT_WRITABLE,
        ) from None


def drop_output() -> None:
    """Sends further output nowhere: who reads it, such as `head`, has seen enough, or it cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
