"""`python -m entrypoint COMMAND …`; the scripts of YOLOv9's names beside the detector start here too."""

from collections.abc import Sequence

from entrypoint.stop_signals import stop_is_interrupt
from yolov9.errors import ExitCode


def run(words: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code: 75 for a stop at any moment, until all is done.

    Args:
        words: command and options; None: those of this process.
    """
    try:
        with stop_is_interrupt():
            from entrypoint.cli import main  # Takes a moment, in which a stop counts already.

            return main(words)
    except KeyboardInterrupt:
        return int(ExitCode.STOPPED_RESUMABLE)
    finally:  # Also after --help, which leaves by SystemExit.
        from yolov9.engine.stop import ignore_stops

        ignore_stops()


if __name__ == "__main__":
    raise SystemExit(run())
