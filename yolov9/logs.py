"""What the program says: one log (level, local time with offset, no colours) to standard error, results to standard
output."""

import logging
import os
import sys

LOG = logging.getLogger("yolov9")
CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
"""All control characters but tab and line feed: a file's name must not move the cursor or colour the terminal."""


class LineFormatter(logging.Formatter):
    """Shows control characters as text."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the text of a record."""
        return super().format(record).translate(CONTROLS)


def setup_logging(*, quiet: bool = False) -> None:
    """Sends the program's log to standard error, a line a record, flushed at once.

    Args:
        quiet: only warnings and errors are shown.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    LOG.handlers[:] = [handler]
    LOG.setLevel(logging.WARNING if quiet else logging.INFO)
    LOG.propagate = False


def show_result(line: str) -> None:
    """Prints a line of what a command was asked for to standard output, also with `--quiet`."""
    try:
        print(line.translate(CONTROLS), flush=True)
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """Sends further output nowhere: who reads it, such as `head`, has seen enough."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
