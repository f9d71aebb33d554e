"""The health command on process trees on paper."""

from pathlib import Path

import pytest

from entrypoint.cli import main

TRAINER = "python\0-P\0-m\0yolov9\0/runs/train/exp/plan.json\0"


def _process(root: Path, pid: int, words: str, state: str) -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "cmdline").write_text(words)
    (folder / "stat").write_text(f"{pid} (python (a b)) {state} 1 1")


def test_a_running_trainer_is_healthy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _process(tmp_path, 1, "tini\0--\0python\0", "S")
    _process(tmp_path, 12, TRAINER, "R")
    assert main(["health", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "/runs/train/exp/plan.json runs\n"


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_trainer_that_makes_no_progress_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    _process(tmp_path, 12, TRAINER, state)
    assert main(["health", "--root", str(tmp_path)]) == 1
    assert "process 12" in capsys.readouterr().out


def test_no_job_is_healthy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _process(tmp_path, 7, "bash\0", "S")
    assert main(["health", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "no job runs\n"
