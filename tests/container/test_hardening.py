"""The image holds nothing that an attacker could use: no privileges, no setuid files, no shell, no secrets."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]
NO_PRIVILEGES = ("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only", "--tmpfs", "/tmp")
SECRET = re.compile(r"(password|passwd|secret|token|api_?key|credential)\w*\s*=\s*\S", re.IGNORECASE)
TRAIN = ("train", "--cfg", "yolov9-t", "--img", "64", "--epochs", "1", "--batch", "4", "--workers", "1", "--noplots")


def test_no_file_runs_with_the_rights_of_another_user(run: Run) -> None:
    found = run("find", "/", "-xdev", "-type", "f", "-perm", "/6000", options=["--user", "0:0"])
    assert found == ""


def test_nothing_between_the_engine_and_the_program_is_a_shell(inspect: Callable[[str], dict], image: str) -> None:
    config = inspect(image)["Config"]
    assert config["Entrypoint"] == ["tini", "-s", "--", "python", "-m", "entrypoint"]
    assert config["User"] not in ("", "0", "root", "0:0")


def test_no_secret_is_in_a_layer(docker: Callable, inspect: Callable[[str], dict], image: str) -> None:
    history = docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", image).stdout
    lines = [*history.splitlines(), *inspect(image)["Config"]["Env"]]
    assert [line for line in lines if SECRET.search(line)] == []


def test_no_private_key_or_history_of_a_build_is_left(run: Run) -> None:
    words = ("-name", "id_rsa*", "-o", "-name", ".netrc", "-o", "-name", ".*_history")
    assert run("find", "/", "-xdev", "(", *words, ")", options=["--user", "0:0"]) == ""


def test_the_program_holds_no_capability(run: Run) -> None:
    held = re.findall(r"^Cap(Prm|Eff|Amb):\s+(\w+)$", run("cat", "/proc/self/status"), re.MULTILINE)
    assert {int(value, 16) for _, value in held} == {0}


@pytest.mark.parametrize("user", [None, "4321:4321"])
def test_a_training_needs_no_capability_no_new_privilege_and_no_writable_root(
    run: Run, data_dir: Path, runs_dir: Path, user: str | None
) -> None:
    options = [*NO_PRIVILEGES, "--volume", f"{data_dir}:/data:ro", "--volume", f"{runs_dir}:/runs"]
    options += [] if user is None else ["--user", user]
    log = run(*TRAIN, "--data", "/data/data.yaml", options=options)
    assert "epoch 1/1:" in log
    assert (runs_dir / "train/exp/weights/best.pt").is_file()
