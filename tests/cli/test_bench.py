"""`bench` as people call it, on a machine without a GPU."""

import csv
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
Started = Callable[..., AbstractContextManager["subprocess.Popen[str]"]]
SMALL = ("--img", "64", "--device", "cpu")


def test_a_sweep_leaves_a_table_a_picture_and_a_setting(run: Run, tmp_path: Path, tiny_set: Path) -> None:
    done = run("bench", "--data", str(tiny_set), *SMALL, "--seconds", "8", "--workers", "1", "2", "--batch", "2,4")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == [
        "workers",
        "batch",
        "samples/s",
        "waiting",
        "CPU",
        "%",
        "disk",
        "MB/s",
        "step",
        "ms",
        "limit",
    ]
    assert lines[-2].startswith("limit:")
    assert lines[-1].startswith("use:    --workers ")
    assert "the loader alone was measured" in done.stdout
    run_dir = tmp_path / "runs" / "bench" / "exp"
    with (run_dir / "bench.csv").open() as file:
        rows = list(csv.DictReader(file))
    measured = {(row["workers"], row["batch"]) for row in rows}
    assert measured <= {(workers, batch) for workers in "12" for batch in "24"}
    # A machine that is busy with other things may not come to all of them in the time; then it says so.
    assert (len(measured) < 4) == ("left out for lack of time" in done.stderr)
    assert all(float(row["samples_s"]) > 0 for row in rows)
    assert sum(float(row["seconds"]) for row in rows) < 8
    assert (run_dir / "bench.png").stat().st_size > 1000
    assert not {path.name for path in run_dir.iterdir()} - {"bench.csv", "bench.png", "plan.json"}


def test_too_little_time_is_said_and_what_became_of_an_option_too(run: Run, tiny_set: Path) -> None:
    done = run("bench", "--data", str(tiny_set), "--img", "60", "--device", "cpu", "--seconds", "0.1")
    assert done.returncode == 2
    assert "--img 60: not a multiple of 32; 64 is used" in done.stderr
    assert "--seconds 0.2" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seconds", "0"), "above 0"),
        (("--workers", "0"), "whole numbers from 1"),
        (("--batch", "x"), "whole numbers"),
        (("--no-such-option",), "--no-such-option"),
        (("--data", "missing.yaml"), "missing.yaml"),
    ],
)
def test_mistakes_are_named_and_leave_no_folder(run: Run, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = run("bench", *words)
    assert done.returncode in (2, 65)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("script", "word"), [("benchmark_loader", "--seconds"), ("check_gpu", "--json")])
def test_scripts_of_articles_run_through_a_link(run: Run, tmp_path: Path, script: str, word: str) -> None:
    (tmp_path / f"{script}.py").symlink_to(REPOSITORY / "yolov9" / f"{script}.py")
    (tmp_path / "data").mkdir()
    done = run("--help", program=(f"{script}.py",), PYTHONPATH="")
    assert done.returncode == 0, done.stderr
    assert word in done.stdout


def test_a_stop_ends_it_with_what_was_measured(tmp_path: Path, tiny_set: Path, started: Started) -> None:
    words = ["bench", "--data", str(tiny_set), *SMALL, "--seconds", "600", "--workers", *"12345678"]
    # More than a second a pair: the stop comes long before the end.
    words += ["--batch", *map(str, range(1, 60))]
    with started(*words) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "workers 1, batch 1:" in line:
                break
        process.terminate()
        output, _ = process.communicate(timeout=200)
    assert process.returncode == 75
    assert output.splitlines()[-1].startswith("use:")
