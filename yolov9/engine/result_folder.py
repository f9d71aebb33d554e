"""Folders that results are written to: made, tried, and refused with what to type."""

from pathlib import Path

from yolov9.errors import ExitCode, UserError


def make_folder(folder: Path) -> None:
    """Makes a folder for results.

    Raises:
        UserError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(folder, error) from error


def make_run_folder(run_dir: Path) -> None:
    """Makes the folder of a training with its `weights` folder and checks that files can be written there.

    Raises:
        UserError: they cannot.
    """
    probe = run_dir / "weights" / ".writable"
    try:
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise not_writable(run_dir, error) from error


def not_writable(folder: Path, error: OSError) -> UserError:
    """Returns the error for a folder that results cannot be written to."""
    return UserError(
        found=f"{folder} cannot be written: {error.strerror or error}",
        needed="a folder that this user may write to, with free space",
        remedy="--project FOLDER, or mount a writable folder at /runs",
        exit_code=ExitCode.OUTPUT_NOT_WRITABLE,
    )
