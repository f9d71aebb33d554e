"""What the plan says under limits of cgroup v2, on machines whose own kernel has version 1: in a kernel of its own.

The program runs from a small image without PyTorch, which the plan does not need.
"""

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DOCKERFILE = """
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-yaml && rm -rf /var/lib/apt/lists/*
COPY entrypoint /opt/yolov9/entrypoint
COPY yolov9 /opt/yolov9/yolov9
ENV PYTHONPATH=/opt/yolov9
ENTRYPOINT ["python3", "-m", "entrypoint"]
"""
TIME_LIMIT_S = 400
PLAN = "plan --json --cfg yolov9-t --img 64 --device cpu"
GIB = 1 << 30
NO_KERNEL = ("fatal_sigsegv", "kill init", "linux.uml")
"""What is said when the second kernel itself breaks down: 6.1 does on CPUs with large vector registers."""


@pytest.fixture(scope="module")
def small_image(
    image: str, inspect: Callable[[str], dict], docker: Callable, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("small")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    base = inspect(image)["Config"]["Labels"]["org.opencontainers.image.base.name"]
    tag = f"yolov9-test-{uuid.uuid4().hex[:12]}"
    docker(
        "build", "--tag", tag, "--build-arg", f"BASE_IMAGE={base}", "--file", folder / "Dockerfile", root, timeout_s=300
    )
    yield tag
    docker("rmi", "--force", tag)


@pytest.fixture(scope="module")
def answers(small_image: str, lab_dir: Path) -> list[str]:
    """What three containers print: half a CPU and a gigabyte, no limits, half a gigabyte."""
    run = f"docker run --rm --network none OPTIONS {small_image} {PLAN} 2>&1; echo '---' $?; "
    options = ("--cpus 0.5 --memory 1g --pids-limit 40", "", "--memory 512m")
    script = "".join(run.replace("OPTIONS", words) for words in options)
    done = subprocess.run(
        [lab_dir / "cgroup-v2.sh", "-i", small_image, "bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    broken = next((words for words in NO_KERNEL if words in done.stderr), None)
    if done.returncode and broken:
        pytest.skip(f"the second kernel does not start on this machine ({broken})")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout.split("---")


def plan_of(answer: str) -> dict[str, Any]:
    """The data in an answer; the engine may say something before."""
    return dict(json.loads(answer[answer.index("{") :]))


def decisions_of(answer: str) -> dict[str, Any]:
    return {decision["name"]: decision for decision in plan_of(answer)["decisions"]}


def test_p04_p07_a_plan_under_cgroup_v2_names_quota_and_memory_limit(answers: list[str]) -> None:
    decisions = decisions_of(answers[0])
    assert decisions["workers"]["value"] == 1
    assert "cgroup v2 cpu.max 50000/100000" in decisions["workers"]["source"]
    facts = plan_of(answers[0])["facts"]
    assert facts["cpu"]["usable"] == 0.5
    assert [limit["limit_bytes"] for limit in facts["memory"]["limits"]] == [GIB]
    assert facts["limits"]["processes"] == 40
    memory = next(budget for budget in plan_of(answers[0])["budgets"] if budget["resource"] == "memory")
    assert "cgroup v2 memory.max 1073741824" in memory["source"]


def test_without_limits_the_machine_of_cgroup_v2_decides(answers: list[str]) -> None:
    assert answers[1].split()[0] == "0"
    assert decisions_of(answers[1])["workers"]["source"] == "CPUs of the machine"
    assert plan_of(answers[1])["facts"]["memory"]["limits"] == []


def test_memory_in_which_no_training_fits_is_refused_under_cgroup_v2(answers: list[str]) -> None:
    assert "memory.max 536870912" in answers[2]
    assert answers[3].strip() == "2"
