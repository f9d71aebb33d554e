"""Reports about read-only data, unknown users and libraries: P31, P32, P34."""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
AsUser = Callable[..., "subprocess.CompletedProcess[str]"]
BUILD_TWICE = """
from pathlib import Path
from yolov9.data import index as module
from yolov9.logs import setup_logging
setup_logging()
cache = Path(sys.argv[2])
looked = []
scan = module.scan_pictures
def counted(paths, known, *others):
    looked.append(len(paths) - len(known))
    return scan(paths, known, *others)
module.scan_pictures = counted
for _ in range(2):
    DatasetIndex.build(load_dataset_config(sys.argv[1]), "train", cache_dir=cache)
print(os.getuid(), looked)
"""
PLAN = """
from entrypoint.cli import main
raise SystemExit(main(["plan", "--json", "--device", "cpu"]))
"""
DISPLAY_CALLS = re.compile(
    r"cv2\.(imshow|namedWindow|waitKey|destroyAllWindows)|^ *(from|import) .*pyplot|TkAgg", re.MULTILINE
)


def fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(f"{path} {path.stat().st_mtime_ns}".encode() + (path.read_bytes() if path.is_file() else b""))
    return digest.hexdigest()


@pytest.fixture
def read_only_set(open_folder: Path, make_set: Callable[..., Path]) -> Path:
    file = make_set(open_folder / "set")
    for folder in [file.parent, *(path for path in file.parent.rglob("*") if path.is_dir())]:
        folder.chmod(0o555)
    return file


@pytest.mark.parametrize("writable", [True, False])
def test_p31_a_read_only_data_set_is_scanned_once_and_stays_as_it_is(
    as_user: AsUser, read_only_set: Path, open_folder: Path, writable: bool
) -> None:
    cache = open_folder / "cache"
    cache.mkdir()
    cache.chmod(0o777 if writable else 0o555)
    before = fingerprint(read_only_set.parent)
    done = as_user(BUILD_TWICE, str(read_only_set), str(cache))
    assert done.returncode == 0, done.stderr
    user = 12345 if os.getuid() == 0 else os.getuid()
    assert done.stdout.strip() == f"{user} {[8, 0] if writable else [8, 8]}", done.stderr
    assert fingerprint(read_only_set.parent) == before
    assert ("will be checked again" in done.stderr) != writable
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("home", [None, "/", "/proc/1/nowhere"])
def test_p32_a_user_without_a_name_and_a_home_has_its_caches_among_the_temporary_files(
    as_user: AsUser, open_folder: Path, home: str | None
) -> None:
    temporary = open_folder / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    (open_folder / "runs").mkdir()
    (open_folder / "runs").chmod(0o777)
    variables = {"TMPDIR": str(temporary)} | ({} if home is None else {"HOME": home})
    done = as_user(PLAN, **variables)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    user = 12345 if os.getuid() == 0 else os.getuid()
    assert plan["environment"]["YOLOV9_CACHE_DIR"] == f"{temporary}/yolov9-{user}"
    assert all(value.startswith(str(temporary)) for value in plan["environment_defaults"].values())
    assert plan["facts"]["limits"]["uid"] == user


def test_p32_an_unwritable_results_folder_is_reported_before_the_data_are_looked_at(
    as_user: AsUser, open_folder: Path, read_only_set: Path
) -> None:
    run = PLAN.replace('["plan", "--json", "--device", "cpu"]', f'["train", "--data", "{read_only_set}"]')
    done = as_user(run, TMPDIR="/tmp")
    assert done.returncode == 73
    assert "mode 0755" in done.stderr
    assert "found:" in done.stderr
    assert "pictures found" not in done.stderr


def test_p34_one_opencv_and_it_needs_no_display() -> None:
    names = {distribution.metadata["Name"].lower() for distribution in distributions()}
    assert {name for name in names if name.startswith("opencv")} == {"opencv-python-headless"}
    code = "import cv2; info = cv2.getBuildInformation(); print(info[info.index('GUI:'):].split(chr(10))[0])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "NONE" in done.stdout


def test_p34_every_module_can_be_imported_without_x_libraries_and_none_opens_a_window() -> None:
    files = [path for package in ("entrypoint", "yolov9") for path in sorted((REPOSITORY / package).rglob("*.py"))]
    modules = [".".join(path.relative_to(REPOSITORY).with_suffix("").parts) for path in files]
    wanted = [name for name in modules if not name.endswith(("__main__", "_triton"))]
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
    code += "maps = open('/proc/self/maps').read()\nassert 'libGL.so' not in maps and 'libX11' not in maps\n"
    done = subprocess.run(
        [sys.executable, "-c", code, *wanted], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [path for path in files if DISPLAY_CALLS.search(path.read_text(encoding="utf-8"))] == []
