"""What is not a command is executed; help, check and plan answer at once and without PyTorch."""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SECONDS = 1.0
"""Time that help, check and plan may take on two idle CPUs."""
CHECK_NO_TORCH = (
    "import sys; sys.argv[0] = 'entrypoint'\n"
    "from entrypoint.cli import main\n"
    "code = main()\n"
    "assert 'torch' not in sys.modules, 'torch was imported'\n"
    "raise SystemExit(code)\n"
)
STARTS = (
    "runpy.run_module('entrypoint', run_name='__main__')",
    f"runpy.run_path({str(REPOSITORY / 'yolov9' / 'train_dual.py')!r}, run_name='__main__')",
)
"""How a program is started from within Python, as `python -m entrypoint` and as a script."""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_without_words_there_is_help_and_the_machine(run: Run) -> None:
    done = run()
    assert done.returncode == 0
    assert "train --data" in done.stdout
    assert "CPUs" in done.stdout


@pytest.mark.parametrize(
    "words", [["--help"], ["check"], ["plan"], ["plan", "--json"], ["train", "--help"], ["health"], []]
)
def test_answers_come_without_pytorch(run: Run, words: list[str]) -> None:
    done = run(*words, program=("-c", CHECK_NO_TORCH))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [["--help"], ["check"], ["plan"]])
def test_answers_take_less_than_a_second_of_cpu(run: Run, words: list[str]) -> None:
    """Counted in CPU time, because others may keep the machine busy."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run(*words).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < SECONDS


def test_a_program_is_executed_with_its_arguments_and_exit_code(run: Run) -> None:
    done = run("sh", "-c", "echo $0 $1; exit 5", "a", "b")
    assert (done.returncode, done.stdout) == (5, "a b\n")


def test_conda_activate_is_answered_in_one_line(run: Run) -> None:
    done = run("conda", "activate", "yolov9")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)
    assert "active" in done.stdout


@pytest.mark.parametrize(("word", "near"), [("trian", "train"), ("no-such-program", "--help")])
def test_a_word_that_is_nothing_gets_a_hint(run: Run, word: str, near: str) -> None:
    done = run(word)
    assert done.returncode == 127
    assert f"type:   {near}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_leading_dash_means_train(run: Run) -> None:
    done = run("--epochs", "0")
    assert done.returncode == 2
    assert "--epochs 0" in done.stderr


def test_plan_as_data_has_all_parts_and_makes_no_folder(run: Run, tmp_path: Path) -> None:
    done = run("plan", "train", "--epochs", "3", "--json")
    data = json.loads(done.stdout)
    assert {"command", "settings", "run_dir", "request", "decisions", "facts", "version"} <= set(data)
    assert data["request"] == {
        "epochs": {"value": 3, "source": "--epochs 3"},
        "json": {"value": True, "source": "--json"},
    }
    assert data["settings"]["device"] == "cpu"
    assert not (tmp_path / "runs").exists()


def test_any_machine_can_be_put_on_paper(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "machine"
    root.mkdir()
    gpu = {"name": "Tesla T4", "total": 16 << 30, "capability": [7, 5]}
    facts = {"affinity": 16, "gpus": [gpu], "driver": "580.65", "wheel": {"torch": "2.14", "cuda": "13.0"}}
    (root / "facts.json").write_text(json.dumps(facts))
    # The test environment hides all GPUs of this machine; the one on paper is to be seen.
    data = json.loads(run("plan", "--json", "--root", str(root), CUDA_VISIBLE_DEVICES="0").stdout)
    values = {decision["name"]: decision["value"] for decision in data["decisions"]}
    assert (values["device"], values["workers"], values["amp"]) == ("0", 15, "fp16")


def test_check_fails_with_the_code_of_what_is_wrong(run: Run, tmp_path: Path) -> None:
    gpu = {"name": "NVIDIA GeForce GTX 1080 Ti", "total": 11 << 30, "capability": [6, 1]}
    facts = {"gpus": [gpu], "driver": "580.65", "wheel": {"torch": "2.14", "cuda": "13.0"}}
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    done = run("check", "--json", "--root", str(tmp_path), CUDA_VISIBLE_DEVICES="0")
    failed = [check for check in json.loads(done.stdout)["checks"] if check["status"] == "FAIL"]
    assert done.returncode == 69
    assert "cuda12 image" in failed[0]["remedy"]


@pytest.mark.parametrize("script", ["train", "train_dual", "val", "val_dual", "detect", "detect_dual"])
def test_scripts_run_through_a_link_and_hide_no_module(run: Run, tmp_path: Path, script: str) -> None:
    (tmp_path / f"{script}.py").symlink_to(REPOSITORY / "yolov9" / f"{script}.py")
    (tmp_path / "data").mkdir()
    done = run("--help", program=(f"{script}.py",), PYTHONPATH="")
    assert done.returncode == 0, done.stderr
    assert "--device" in done.stdout


def test_the_article_command_is_understood(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train_dual.py").symlink_to(REPOSITORY / "yolov9" / "train_dual.py")
    command = (
        "--workers 8 --device 0 --batch 64 --data data.yaml --img 640 --cfg models/detect/yolov9-s.yaml --weights '' "
        "--name yolov9-s --hyp hyp.scratch-high.yaml --min-items 0 --epochs 20 --close-mosaic 15"
    )
    words = ["" if word == "''" else word for word in command.split()]
    done = run(*words, program=("train_dual.py",))
    # Everything is read before the first thing that is missing here: the data set.
    assert done.returncode == 65, done.stderr
    assert "data.yaml" in done.stderr


def test_the_log_of_a_refused_job_comes_with_time_and_offset(run: Run) -> None:
    line = run("train", "--device", "0").stderr.splitlines()[0]
    assert time.strptime(line.split()[0], "%Y-%m-%dT%H:%M:%S%z").tm_year >= 2024


@pytest.mark.parametrize("start", STARTS)
def test_a_stop_while_the_program_is_loaded_is_a_stop(run: Run, start: str) -> None:
    script = f"""
import runpy, signal, sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "entrypoint.cli":
            signal.raise_signal(signal.SIGTERM)
sys.meta_path.insert(0, Stop())
{start}
"""
    done = run("--help", program=("-c", script))
    assert (done.returncode, done.stderr) == (75, "")


@pytest.mark.parametrize(
    ("start", "exit_code"), [*((start, 0) for start in STARTS), ("runpy.run_module('yolov9', run_name='__main__')", 2)]
)
def test_a_stop_after_all_is_done_changes_nothing(run: Run, start: str, exit_code: int) -> None:
    script = f"""
import atexit, runpy, signal, sys
atexit.register(signal.raise_signal, signal.SIGTERM)
sys.argv = ["program", *sys.argv[1:]]
{start}
"""
    words = [] if exit_code else ["--help"]
    assert run(*words, program=("-c", script)).returncode == exit_code


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("argv", ["help", "check", "check --json", "plan", "plan --json", "train --help", "health", ""])
def test_an_answer_onto_a_full_disk_is_refused_plainly(
    clean_environment: dict[str, str], tmp_path: Path, argv: str, unbuffered: str
) -> None:
    command = [sys.executable, "-m", "entrypoint", *argv.split()]
    variables = {**clean_environment, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, cwd=tmp_path, env=variables, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 73, done.stderr
    assert "Traceback" not in done.stderr
    assert "found:  standard output could not be written: No space left on device" in done.stderr


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("argv", "exit_code"), [("check", 0), ("plan --json", 0), ("train --data nowhere.yaml", 65)])
def test_without_standard_streams_the_exit_code_is_the_same(
    run: Run, redirection: str, argv: str, exit_code: int
) -> None:
    command = f"exec {sys.executable} -m entrypoint {argv} {redirection}"
    script = f"import os; os.execvp('sh', ['sh', '-c', {command!r}])"
    done = run(program=("-c", script))
    assert done.returncode == exit_code, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("print_it", ["show_result('scores')", "print('help'); flush_output()"])
def test_a_result_that_cannot_be_written_is_no_internal_error(run: Run, print_it: str) -> None:
    """Onto a full disk, as `val … > scores.txt` does it."""
    script = f"""
import os, sys
from yolov9.errors import UserError
from yolov9.logs import flush_output, show_result
os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
try:
    {print_it}
except UserError as error:
    sys.exit(int(error.exit_code))
"""
    done = run(program=("-c", script), PYTHONUNBUFFERED="")
    assert (done.returncode, done.stderr) == (73, "")
