"""Which word starts what. Each command lives in its own module and is imported when it is called."""

import signal
import sys
from collections.abc import Sequence

from entrypoint.help_text import COMMANDS, help_text
from yolov9 import __version__
from yolov9.errors import ExitCode, UserError
from yolov9.logs import LOG, drop_output, flush_output, setup_logging, show_text


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code; what a user can put right is said without a traceback.

    Raises:
        KeyboardInterrupt: a stop was asked for while no trainer was running.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    setup_logging()
    try:
        try:
            return _dispatch(words)
        finally:
            flush_output()
    except BrokenPipeError:
        drop_output()
        return 128 + signal.SIGPIPE
    except UserError as error:
        for line in str(error).splitlines():
            LOG.error("%s", line)
        return int(error.exit_code)
    except Exception:
        LOG.exception("internal error; please report it with the lines below")
        return int(ExitCode.INTERNAL)


def _dispatch(words: list[str]) -> int:
    if not words:
        from entrypoint.check import check_table, checked_facts, machine_checks

        show_text(help_text())
        show_text(check_table(machine_checks(checked_facts())))
        return 0
    if words[0] in ("help", "--help", "-h"):
        show_text(help_text())
        return 0
    if words[0] == "--version":
        show_text(f"yolov9 {__version__}")
        return 0
    if words[0].startswith("-"):
        words = ["train", *words]
    command, rest = words[0], words[1:]
    if command in ("train", "val", "detect"):
        from entrypoint.job import run_job

        return run_job(command, rest)
    if command == "bench":
        from entrypoint.bench import run_bench

        return run_bench(rest)
    if command == "plan":
        from entrypoint.plan_command import run_plan

        return run_plan(rest)
    if command == "check":
        from entrypoint.check import run_check

        return run_check(rest)
    if command == "health":
        from entrypoint.health import run_health

        return run_health(rest)
    from entrypoint.programs import run_program

    return run_program(words, list(COMMANDS))
