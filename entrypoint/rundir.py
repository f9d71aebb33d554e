"""Folders of results: runs/train/exp, exp2, exp3 … Made before anything else, so that nothing is lost at the end."""

import errno
import itertools
import os
import tempfile
from pathlib import Path

from entrypoint.host.storage import FolderFacts, read_folder
from entrypoint.host.tree import open_tree
from entrypoint.units import size_text
from yolov9.errors import ExitCode, UserError

DIRECTORY_MODE = 0o777
"""The umask decides, as for any program."""


def make_run_dir(project: str | Path, name: str, *, exist_ok: bool = False) -> Path:
    """Makes a new folder `project/name`, or with a number from 2 up; two jobs that start together get two folders.

    Its real path is returned, without links: in the image `runs` leads to /runs, which is what people mount.

    Raises:
        UserError: it cannot be made or written (exit code 73), with user, owner, mode and what to type.
    """
    parent = Path(project)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        if exist_ok:
            (parent / name).mkdir(parents=True, exist_ok=True)
            check_writable(parent / name)
            return (parent / name).resolve()
        for candidate in candidates(name):
            try:
                (parent / candidate).mkdir(mode=DIRECTORY_MODE, parents="/" in name)
            except FileExistsError:
                continue
            check_writable(parent / candidate)
            return (parent / candidate).resolve()
    except OSError as error:
        raise not_writable(parent / name if exist_ok and (parent / name).exists() else parent, error) from None
    raise AssertionError("candidates() never ends")


def candidates(name: str) -> "itertools.chain[str]":
    """Returns name, name2, name3 …"""
    return itertools.chain([name], (f"{name}{number}" for number in itertools.count(2)))


def next_run_dir(project: str | Path, name: str, *, exist_ok: bool = False) -> Path:
    """Returns the folder that `make_run_dir` would make now, without making it."""
    parent = Path(project)
    names = [name] if exist_ok else candidates(name)
    return Path(os.path.realpath(parent / next(c for c in names if exist_ok or not (parent / c).exists())))


def check_writable(folder: Path) -> None:
    """Writes and removes a file: permission bits do not tell about read-only mounts, quotas or user namespaces.

    Raises:
        UserError: it cannot be written (exit code 73).
    """
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".write-test-") as file:
            file.write(b"x")
    except OSError as error:
        raise not_writable(folder, error) from None


def not_writable(folder: Path, error: OSError) -> UserError:
    """Returns the error for a folder that cannot be written."""
    facts = read_folder(open_tree(), os.path.realpath(folder))
    uid, gid = os.getuid(), os.getgid()
    mode = f"{facts.mode:04o}" if facts.mode is not None else "unknown"
    words = f"{facts.path}: {os.strerror(error.errno) if error.errno else error}; this is user {uid}:{gid}, "
    words += f"{facts.existing} belongs to user {facts.owner_uid} with mode {mode}"
    if facts.read_only_mount:
        words += f", on a read-only mount ({facts.kind})"
    if error.errno == errno.ENOSPC:
        words += f", {size_text(facts.free_bytes)} free"
    return UserError(
        found=words,
        needed="a folder for the results that this user may write to",
        remedy=_remedy(facts, uid, gid, error),
        exit_code=ExitCode.OUTPUT_NOT_WRITABLE,
    )


def _remedy(facts: FolderFacts, uid: int, gid: int, error: OSError) -> str:
    elsewhere = "--project FOLDER for another place"
    if error.errno == errno.ENOSPC:
        return f"free some space under {facts.existing}, or {elsewhere}"
    if error.errno == errno.ENOTDIR or (error.errno == errno.EEXIST and not Path(facts.existing).is_dir()):
        return f"remove or rename the file {facts.existing}, or {elsewhere}"
    if facts.read_only_mount or error.errno == errno.EROFS:
        return f"mount a folder for results: docker run -v ./runs:/runs …, or {elsewhere}"
    return (
        f"on the host: sudo chown -R {uid}:{gid} the mounted folder, or docker run --user "
        f"{facts.owner_uid}:… (compose: RUN_AS) to be its owner, or {elsewhere}"
    )
