"""Malformed inputs, made from good ones with fixed seeds, go through the functions that the commands start with."""

import contextlib
import faulthandler
import io
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HANG_S = 30
"""A single input takes milliseconds; one that takes so long hangs."""
INTERESTING = (
    b"\0",
    b"\xff",
    b"-1",
    b"1e999",
    b"nan",
    b"../",
    b"\n",
    b"\t",
    b"{",
    b"[",
    b"&a",
    b"*a",
    b"!!python",
    b"9" * 40,
)
"""Bytes that formats give a meaning to."""
MOST_SHOWN = 1500
"""Characters of the log of an input that ended badly."""
ALLOWED = {0, 2, 65, 69, 73, 75}
"""Exit codes that a user's mistake may have; 70 is ours."""
Program = Callable[[], int]


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Returns the data with one to eight random changes."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        place, other = (rng.randrange(len(changed) + 1) for _ in range(2))
        low, high = sorted((place, other))
        match rng.randrange(7):
            case 0 if changed:
                changed[min(place, len(changed) - 1)] ^= 1 << rng.randrange(8)
            case 1:
                del changed[low : min(high, low + 64)]
            case 2:
                changed[place:place] = rng.choice(INTERESTING)
            case 3:
                changed[place:place] = changed[low : min(high, low + 32)]
            case 4:
                del changed[place:]
            case 5:
                changed[low : low + 8] = rng.randbytes(8)
            case _:
                numbers = list(re.finditer(rb"\d+", changed))
                if numbers:
                    found = rng.choice(numbers)
                    changed[found.start() : found.end()] = rng.choice((b"0", b"-1", b"99999999999", b"1e400", b"x"))
    return bytes(changed)


@pytest.fixture
def mutate() -> Callable[[random.Random, bytes], bytes]:
    return mutated


class Endings:
    """Runs a program on one input after the other and remembers which ended as no program may."""

    def __init__(self) -> None:
        self.count = 0
        self.bad: list[str] = []

    def run(self, what: object, program: Program) -> str:
        """Runs and returns what was printed; a traceback, an exception, or an undocumented exit code is remembered."""
        self.count += 1
        log = io.StringIO()
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        try:
            with contextlib.redirect_stderr(log), contextlib.redirect_stdout(log):
                status: object = program()
        except SystemExit as error:
            status = error.code
        except BaseException as error:
            status = f"{type(error).__name__}: {error}"
        finally:
            faulthandler.cancel_dump_traceback_later()
        if status not in ALLOWED or "Traceback" in log.getvalue():
            self.bad.append(f"{what}: ended with {status}\n{log.getvalue()[-MOST_SHOWN:]}")
        return log.getvalue()


@pytest.fixture
def endings() -> Iterator[Endings]:
    """Fails at the end when an input ended badly."""
    endings = Endings()
    yield endings
    assert not endings.bad, f"{len(endings.bad)} of {endings.count} inputs:\n" + "\n".join(endings.bad)


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, with caches of its own and no GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("YOLOV9_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return tmp_path
