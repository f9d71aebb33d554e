"""`python -m entrypoint COMMAND …`."""

from entrypoint.stop_signals import stop_is_interrupt
from yolov9.errors import ExitCode


def run() -> int:
    """Runs the command line; a stop at any moment ends it with 75."""
    try:
        with stop_is_interrupt():
            from entrypoint.cli import main  # Takes a moment, in which a stop counts already.

            return main()
    except KeyboardInterrupt:
        return int(ExitCode.STOPPED_RESUMABLE)


if __name__ == "__main__":
    status = run()

    from yolov9.engine.stop import ignore_stops

    ignore_stops()
    raise SystemExit(status)
