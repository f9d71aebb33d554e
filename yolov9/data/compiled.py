"""The loader's functions in C: compiled where the program runs, kept for later runs, given to workers as memory.

Without a C compiler, or when anything about it fails, OpenCV does the work, and the log says so.
"""

import contextlib
import functools
import hashlib
import os
import platform
import shutil
import signal
import stat
import subprocess
import tempfile
from pathlib import Path

from yolov9.config.environment import child_environment
from yolov9.data.shared import create_memory
from yolov9.logs import LOG

COMPILERS = ("cc", "gcc", "clang")
SOURCE = Path(__file__).with_name("brush.c")
HEADER = SOURCE.with_name("columns.h")
FLAGS = (
    *("-O3", "-march=native", "-shared", "-fPIC"),
    # Without these a comparison that might trap keeps the loop from being vectorised. No value here is NaN or infinite.
    *("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-ffinite-math-only"),
    # The same rounding on processors with and without fused multiplication and addition.
    "-ffp-contract=off",
    # For its own processors with AVX-512 GCC chooses vectors of half that length, and takes a third longer for colours.
    *(("-mprefer-vector-width=512",) if platform.machine() == "x86_64" else ()),
)
COMPILE_TIMEOUT_S = 8.0
"""It takes 0.3 s of one CPU. Waiting here delays a stop that is asked for at the start, and Docker gives it 10 s."""
ELF_MAGIC = b"\x7fELF"
"""How a library begins; a wrapper that calls no compiler may report success all the same."""


def share_library(cache_dir: Path | None) -> int | None:
    """Compiles the library, or takes it from the cache, and returns memory that holds it; None when it cannot be had.

    Args:
        cache_dir: where the result is kept for later runs; None for nowhere.
    """
    library = _library(cache_dir)
    if library is None:
        return None
    fd = create_memory("yolov9-brush", len(library))
    os.pwrite(fd, library, 0)
    return fd


@functools.cache
def _library(cache_dir: Path | None) -> bytes | None:
    compiler = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if compiler is None:
        LOG.info("samples are drawn by OpenCV, which takes about twice as long: there is no C compiler")
        return None
    cache_dir = _writable(cache_dir)
    try:
        kept = None if cache_dir is None else cache_dir / f"brush-{_key(compiler)}.so"
        if kept is not None and (library := _kept_library(kept)) is not None:
            return library
        with tempfile.TemporaryDirectory(dir=cache_dir) as folder:
            made = Path(folder) / SOURCE.with_suffix(".so").name
            _compile(compiler, made)
            library = made.read_bytes()
            if not library.startswith(ELF_MAGIC):
                raise OSError(f"{compiler} made no library")
            made.write_bytes(library + hashlib.sha256(library).digest())
            made.chmod(stat.S_IRWXU)
            if kept is not None:
                with contextlib.suppress(OSError):  # somebody else's file of that name
                    made.replace(kept)
        return library
    except (OSError, subprocess.SubprocessError) as error:
        LOG.info("samples are drawn by OpenCV, compiling failed: %s", error)
        return None


def _writable(folder: Path | None) -> Path | None:
    """Makes the folder; None when that cannot be done."""
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def _kept_library(path: Path) -> bytes | None:
    """Returns what an earlier run kept; None when there is none, or when a power cut or a full disk left a part."""
    if not _is_ours(path):
        return None
    content = path.read_bytes()
    size = len(content) - hashlib.sha256().digest_size
    library, digest = content[: max(0, size)], content[max(0, size) :]
    return library if hashlib.sha256(library).digest() == digest else None


def _is_ours(path: Path) -> bool:
    """What others could have written is not executed."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _key(compiler: str) -> str:
    """Hash of everything that the result depends on; `native` means the processor."""
    processor = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("flags", "Feat"))]
    parts = (SOURCE.read_text(), HEADER.read_text(), *FLAGS, os.path.realpath(compiler), *processor[:1])
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _compile(compiler: str, made: Path) -> None:
    """Runs the compiler. Its messages go to a file: what it started could hold a pipe open for longer than it lives.

    Raises:
        OSError: it failed.
        subprocess.TimeoutExpired: it hung; it and all that it started were ended.
    """
    command = [compiler, *FLAGS, str(SOURCE), "-o", str(made)]
    messages = made.with_suffix(".log")
    with (
        messages.open("wb") as log,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=child_environment({}), process_group=0
        ) as process,
    ):
        try:
            status = process.wait(COMPILE_TIMEOUT_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if status:
        first = messages.read_text(encoding="utf-8", errors="replace").strip().splitlines()[:1]
        raise OSError(f"{compiler}: {first}")
