"""One logger for the whole program: level, local time with offset, to standard error, no colours."""

import logging
import sys

LOG = logging.getLogger("yolov9")


def setup_logging(*, quiet: bool = False) -> None:
    """Sends the program's log to standard error, a line a record, flushed at once.

    Args:
        quiet: only warnings and errors are shown.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    LOG.handlers[:] = [handler]
    LOG.setLevel(logging.WARNING if quiet else logging.INFO)
    LOG.propagate = False
