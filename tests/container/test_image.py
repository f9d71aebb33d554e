"""What is in the image, and how it behaves before any job."""

import json
import re
from collections.abc import Callable

import pytest

Run = Callable[..., str]


@pytest.fixture(scope="module")
def config(image: str, inspect: Callable[[str], dict]) -> dict:
    return inspect(image)["Config"]


def test_without_a_command_it_prints_help_and_the_machine(run: Run) -> None:
    log = run(expected=[r"\bWARN\b"])
    for word in ("train", "detect", "Exit codes", "/dev/shm", "CPU"):
        assert word in log


def test_the_help_takes_less_than_two_seconds_of_python(run: Run) -> None:
    script = "import subprocess, time; t = time.monotonic(); subprocess.run(['python', '-m', 'entrypoint', '--help'], "
    script += "check=True, stdout=subprocess.DEVNULL); print(time.monotonic() - t)"
    assert float(run("python", "-c", script)) < 2


def test_labels_say_what_it_is(config: dict) -> None:
    labels = config["Labels"]
    assert labels["org.opencontainers.image.title"] == "yolov9"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert re.fullmatch(r"\d+\.\d+\.\d+", labels["org.opencontainers.image.version"])
    assert re.fullmatch(r"[0-9a-f]{40}", labels["org.opencontainers.image.revision"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", labels["org.opencontainers.image.created"])
    assert labels["yolov9.cuda"] in ("cuda13", "cuda12")


def test_it_runs_as_an_ordinary_numeric_user_under_an_init(config: dict) -> None:
    assert config["User"] == "1000:1000"
    assert config["Entrypoint"][0] == "tini"
    assert config["StopSignal"] == "SIGTERM"


def test_the_nvidia_runtime_is_asked_for_compute_and_nvidia_smi(config: dict) -> None:
    assert "NVIDIA_VISIBLE_DEVICES=all" in config["Env"]
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in config["Env"]


def test_the_health_check_answers(config: dict, run: Run) -> None:
    assert run(*config["Healthcheck"]["Test"][1:]) == "no job runs\n"


def test_anything_else_is_executed_with_its_own_exit_code(run: Run) -> None:
    assert run("bash", "-c", "echo $PWD; exit 7", exit_code=7) == "/workspace\n"


def test_p34_exactly_one_opencv_and_it_is_headless(run: Run) -> None:
    script = "import importlib.metadata as m; print([d.name for d in m.distributions() if 'opencv' in d.name.lower()])"
    assert run("python", "-c", script) == "['opencv-python-headless']\n"


def test_p34_each_module_of_the_program_can_be_imported(run: Run) -> None:
    script = """
import importlib, pkgutil, entrypoint, yolov9
for package in (entrypoint, yolov9):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            print(module.name)
"""
    names = run("python", "-W", "error", "-c", script).split()
    assert {"entrypoint.cli", "yolov9.model", "yolov9.data"} <= set(names)


def test_no_installer_and_no_build_tool_of_python_is_left(run: Run) -> None:
    assert (
        run("bash", "-c", "type pip uv || true; ls /tools 2>/dev/null || true", expected=["not found"]).count(
            "not found"
        )
        == 2
    )


def test_the_working_folder_is_known_as_root_yolov9_to_any_user(run: Run) -> None:
    command = "cd /root/yolov9 && ls train_dual.py detect_dual.py && echo kept > note && cat note"
    log = run("bash", "-c", command, options=["--user", "12345:12345"])
    assert log == "detect_dual.py\ntrain_dual.py\nkept\n"


def test_conda_activate_is_answered_in_one_line(run: Run) -> None:
    for words in (["conda", "activate", "yolov9"], ["bash", "-c", "conda activate yolov9"]):
        log = run(*words)
        assert log.count("\n") == 1
        assert "active" in log


def test_a_font_has_chinese_japanese_korean_and_cyrillic(run: Run) -> None:
    script = """
from yolov9.engine.fonts import FontSet
print(all(run.font for run in FontSet().runs("猫 ねこ ネコ 고양이 кот γάτα")))
"""
    assert run("python", "-c", script) == "True\n"


def test_triton_finds_a_compiler_and_the_headers_of_python(run: Run) -> None:
    script = "printf '#include <Python.h>\\nint main(void){return 0;}' > /tmp/a.c && gcc -c /tmp/a.c -o /tmp/a.o "
    script += '$(python -c \'import sysconfig; print("-I" + sysconfig.get_paths()["include"])\') && echo compiled'
    assert run("bash", "-c", script) == "compiled\n"


def test_plan_knows_the_limits_of_the_container(run: Run) -> None:
    plan = json.loads(run("plan", "--json", "--cfg", "yolov9-t", options=["--cpus", "1.5", "--shm-size", "100m"]))
    text = json.dumps(plan)
    assert "104857600" in text
