"""Errors that a user can cause, and the exit code that each of them ends the program with."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command; documented in the README."""

    DONE = 0
    USAGE = 2
    BAD_DATA = 65
    NO_GPU = 69
    INTERNAL = 70
    GPU_FAILED = 71
    OUTPUT_NOT_WRITABLE = 73
    STOPPED_RESUMABLE = 75
    DIVERGED = 76


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's text, for a message of one line; the error's type when it has no text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class UserError(Exception):
    """Something the user can put right: says what was found, what is needed and what to type.

    Args:
        found: what is there now, naming the file, flag or device.
        needed: what the program needs instead.
        remedy: what to type or change; it is shown on a line of its own.
        exit_code: code the process ends with when nobody catches the error.
    """

    def __init__(self, found: str, needed: str, remedy: str, exit_code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(found, needed, remedy, exit_code)
        self.found = found
        self.needed = needed
        self.remedy = remedy
        self.exit_code = exit_code

    def __str__(self) -> str:
        # Names with line feeds in them do not make lines of their own.
        found, needed, remedy = (text.replace("\n", "\\n") for text in (self.found, self.needed, self.remedy))
        return f"found:  {found}\nneeded: {needed}\ntype:   {remedy}"


class DataError(UserError):
    """The data set cannot be trained on as it is."""

    def __init__(self, found: str, needed: str, remedy: str) -> None:
        super().__init__(found, needed, remedy, ExitCode.BAD_DATA)

    def __reduce__(self) -> tuple[type["DataError"], tuple[str, str, str]]:
        return type(self), (self.found, self.needed, self.remedy)
