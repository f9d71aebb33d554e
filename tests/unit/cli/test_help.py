"""The help names each command as it is called, and the output may be cut off."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from entrypoint.bench import BenchOptions, run_bench
from entrypoint.cli import main
from entrypoint.options import options_of
from entrypoint.request import SETTINGS, JobOptions, ReportOptions, command_parser
from yolov9 import __version__
from yolov9.errors import ExitCode

README = Path(__file__).parents[3] / "README.md"


def test_the_help_of_plan_says_how_plan_is_called() -> None:
    assert command_parser("val", report=True).format_help().startswith("usage: plan val [options]")
    assert command_parser("val").format_help().startswith("usage: val [options]")


def test_the_help_of_plan_says_that_nothing_is_done() -> None:
    assert "would do here" in command_parser("train", report=True).format_help()
    assert "would do here" not in command_parser("train").format_help()


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"yolov9 {__version__}\n"


@pytest.mark.parametrize(("wrong", "type_this"), [("--epoch", "--epochs …"), ("--user", "train --help")])
def test_a_suggestion_is_a_similar_word_and_not_just_another_option(
    wrong: str, type_this: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", wrong, "0"]) == ExitCode.USAGE
    assert capsys.readouterr().err.rstrip().endswith(type_this)


def test_the_readme_lists_every_exit_code() -> None:
    readme = README.read_text(encoding="utf-8")
    listed = {int(number) for number in re.findall(r"^\| (\d+) \|", readme, re.MULTILINE)}
    assert {int(code) for code in ExitCode} <= listed


def test_the_readme_names_every_option() -> None:
    words = set(re.findall(r"--[a-z][a-z-]*", README.read_text(encoding="utf-8")))
    options = options_of([*SETTINGS.values(), JobOptions, ReportOptions, BenchOptions])
    assert options
    assert [name for name, option in options.items() if not words & set(option.flags)] == []


def test_an_empty_list_is_not_shown_as_a_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_bench(["--help"])
    shown = capsys.readouterr().out
    assert "(default: 60.0)" in shown
    assert "(default: )" not in shown


@pytest.mark.parametrize("command", ["train", "plan", "check", "bench", "health"])
def test_an_unknown_option_gets_the_three_lines_of_an_error(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--no-such-option"]) == ExitCode.USAGE
    shown = capsys.readouterr().err
    assert [word for word in ("found:", "needed:", "type:", "--no-such-option") if word not in shown] == []


@pytest.mark.parametrize("command", ["check", "plan"])
def test_a_reader_that_leaves_early_gets_no_traceback(command: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    words = [sys.executable, "-m", "entrypoint", command]
    done = subprocess.run(words, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")
