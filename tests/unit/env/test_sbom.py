"""The list of packages holds what the lock file holds, with licences, and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "env" / "sbom.py"
COMPONENTS = [
    {"bom-ref": "1", "name": "Alpha_x", "version": "1.0", "licenses": [{"expression": "MIT OR Apache-2.0"}]},
    {"bom-ref": "2", "name": "beta", "version": "2", "licenses": [{"license": {"id": "BSD-3-Clause"}}]},
    {"bom-ref": "3", "name": "pytest", "version": "9"},
]
DEPENDENCIES = [{"ref": "1", "dependsOn": ["2", "3"]}, {"ref": "3"}]


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    bom = {"bomFormat": "CycloneDX", "metadata": {}, "components": COMPONENTS, "dependencies": DEPENDENCIES}
    (tmp_path / "all.json").write_text(json.dumps(bom))
    return tmp_path / "all.json"


def narrow(listed: Path, lock: str) -> "subprocess.CompletedProcess[str]":
    (listed.parent / "x.lock").write_text(lock)
    command = [sys.executable, str(SCRIPT), str(listed), str(listed.parent / "x.lock"), str(listed.parent)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_only_what_is_locked_is_listed(listed: Path) -> None:
    done = narrow(
        listed, "alpha-x==1.0 \\\n    --hash=x\nbeta==2\nother==1 ; sys_platform == 'win32' \\\n    --hash=x\n"
    )
    assert done.returncode == 0, done.stderr
    bom = json.loads((listed.parent / "sbom.json").read_text())
    assert [part["name"] for part in bom["components"]] == ["Alpha_x", "beta"]
    assert bom["dependencies"] == [{"ref": "1", "dependsOn": ["2"]}]
    lines = [line.split(maxsplit=2) for line in (listed.parent / "licences.txt").read_text().splitlines()]
    assert lines == [["Alpha_x", "1.0", "MIT OR Apache-2.0"], ["beta", "2", "BSD-3-Clause"]]


def test_a_package_that_is_not_installed_is_an_error(listed: Path) -> None:
    done = narrow(listed, "alpha-x==1.0\nmissing==2\n")
    assert done.returncode == 1
    assert "missing" in done.stderr
