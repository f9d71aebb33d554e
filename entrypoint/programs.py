"""Anything that is not a command is executed as a program, as in docker-library images."""

import os
import sys
from collections.abc import Sequence

from entrypoint.options import nearest
from yolov9.logs import show_text

NOT_FOUND = 127
NOT_EXECUTABLE = 126
"""Exit codes that shells use."""


def run_program(argv: Sequence[str], commands: Sequence[str]) -> int:
    """Replaces this process by a program; returns an exit code only when that is not possible.

    Args:
        argv: program and arguments.
        commands: names of our own commands, for the message about a mistyped one.
    """
    if list(argv[:2]) in (["conda", "activate"], ["source", "activate"]):
        show_text(f"{' '.join(argv)}: there is nothing to activate, the environment of this image is always active")
        return 0
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(argv[0], list(argv))
    except FileNotFoundError:
        near = nearest(argv[0], commands)
        print(f"found:  {argv[0]!r} is neither a command nor a program", file=sys.stderr)
        print(f"needed: one of: {', '.join(commands)}, or a program on the PATH", file=sys.stderr)
        print(f"type:   {near or '--help'}", file=sys.stderr)
        return NOT_FOUND
    except OSError as error:
        print(f"found:  {argv[0]}: {error.strerror}", file=sys.stderr)
        print("needed: a program that this user may execute", file=sys.stderr)
        print(f"type:   chmod +x {argv[0]}, or name its interpreter: bash {argv[0]}", file=sys.stderr)
        return NOT_EXECUTABLE
