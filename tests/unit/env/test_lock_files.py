"""The lock files agree with what the package says it needs."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ENV_DIR = ROOT / "env"
IMAGE_LOCKS = ("cuda13", "cuda12")
ALL_LOCKS = (*IMAGE_LOCKS, "test", "lint", "tools", "sbom")


def _names(lines: list[str]) -> set[str]:
    """Package names in requirement lines, in the spelling of the index."""
    found = (re.match(r"[A-Za-z0-9._-]+", line) for line in lines if not line.startswith(("#", "-", " ")))
    return {re.sub(r"[-_.]+", "-", match[0]).lower() for match in found if match}


def _read(name: str) -> list[str]:
    return (ENV_DIR / name).read_text().splitlines()


def _project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("lock", IMAGE_LOCKS)
def test_what_the_package_needs_is_wished_and_locked(lock: str) -> None:
    project = _project()
    needed = _names(project["dependencies"] + project["optional-dependencies"]["coco"])
    assert _names(_read("requirements.in") + _read(f"{lock}.in")) == needed
    assert needed <= _names(_read(f"{lock}.lock"))


@pytest.mark.parametrize("extra", ["test", "lint"])
def test_the_extras_of_the_package_are_locked(extra: str) -> None:
    assert _names(_project()["optional-dependencies"][extra]) <= _names(_read(f"{extra}.lock"))


@pytest.mark.parametrize("lock", ALL_LOCKS)
def test_each_locked_package_has_an_exact_version_and_a_hash(lock: str) -> None:
    blocks = re.split(r"\n(?=\S)", "\n".join(line for line in _read(f"{lock}.lock") if not line.startswith("#")))
    for block in blocks:
        assert re.match(r"[a-z0-9.-]+==\S+ ", block), block
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block


@pytest.mark.parametrize("lock", ALL_LOCKS)
def test_no_lock_file_names_a_host(lock: str) -> None:
    assert "://" not in "\n".join(_read(f"{lock}.lock"))


def test_each_wish_says_why() -> None:
    for name in ("requirements", *ALL_LOCKS):
        for line in _read(f"{name}.in"):
            assert line.startswith(("#", "-")) or re.search(r"\S\s+# \S", line), f"{name}.in: {line}"


def test_opencv_comes_in_its_headless_form_only() -> None:
    for lock in IMAGE_LOCKS:
        assert [name for name in _names(_read(f"{lock}.lock")) if "opencv" in name] == ["opencv-python-headless"]
