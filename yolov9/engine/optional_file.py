"""Files that people look at and no run needs: pictures, diagrams, reports."""

from collections.abc import Iterator
from contextlib import contextmanager

from yolov9.logs import LOG


@contextmanager
def optional_file(what: object) -> Iterator[None]:
    """When a file cannot be written inside this context, that is said and the run goes on.

    Args:
        what: its path or name, for the log.
    """
    try:
        yield
    except OSError as error:
        LOG.warning("%s could not be written: %s; the run goes on without it", what, error.strerror or error)
