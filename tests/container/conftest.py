"""Real containers of the real image. `make smoke` builds the image and names it in YOLOV9_TEST_IMAGE."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
TIME_LIMIT_S = 420
"""For one container; two cores train one epoch of the embedded data set in less."""
TROUBLE = re.compile(r"\b(WARN|WARNING|ERROR|CRITICAL)\b|Traceback \(most recent call last\)|[A-Za-z]+Warning:")
"""What no log of a container may hold unless the test says that it expects it."""
NO_GPU = r"WARNING device \(!\) .*NO GPU IS VISIBLE"
"""Each job on a machine without a GPU says so loudly; so do all jobs here."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder need an engine and the image."""
    absent = "runs in `make smoke`, which builds the image and needs a Docker engine"
    for item in items:
        if ROOT / "tests/container" in item.path.parents:
            item.add_marker(pytest.mark.container)
            item.add_marker(pytest.mark.timeout(2 * TIME_LIMIT_S))
            if not os.environ.get("YOLOV9_TEST_IMAGE"):
                item.add_marker(pytest.mark.skip(reason=absent))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One random moment for each ten trainings that are killed without a container; at least two."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(max(2, metafunc.config.getoption("--chaos-runs") // 10)))


def docker(*words: object, timeout_s: float = 120, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs the docker client; its output is in the message when it fails and must not."""
    command = ["docker", *map(str, words)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=ROOT)
    if check and result.returncode:
        pytest.fail(f"{' '.join(command)}: exit code {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result


def assert_quiet(log: str, expected: Sequence[str] = ()) -> None:
    """Fails on each line that tells of trouble, but for those that match one of the expected patterns."""
    lines = [line for line in log.splitlines() if TROUBLE.search(line)]
    unexpected = [line for line in lines if not any(re.search(pattern, line) for pattern in (NO_GPU, *expected))]
    assert not unexpected, "\n".join(["unexpected in the log:", *unexpected, "the whole log:", log])


@dataclass
class Container:
    """A started container."""

    name: str

    def wait(self, timeout_s: float = TIME_LIMIT_S) -> int:
        """Waits until it ends and returns its exit code."""
        try:
            return int(docker("wait", self.name, timeout_s=timeout_s).stdout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self.name} did not end within {timeout_s} s:\n{self.log()}")

    def log(self) -> str:
        """All of its output, both streams in the order of time."""
        command = ["docker", "logs", self.name]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout

    def wait_for(self, pattern: str, timeout_s: float = TIME_LIMIT_S) -> str:
        """Follows the log until a line matches, and returns that line."""
        command = ["timeout", str(timeout_s), "docker", "logs", "--follow", self.name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as follower:
            assert follower.stdout is not None
            try:
                for line in follower.stdout:
                    if re.search(pattern, line):
                        return line
            finally:
                follower.kill()
        pytest.fail(f"no line of the log matches {pattern!r}:\n{self.log()}")


Start = Callable[..., Container]
Run = Callable[..., str]


@pytest.fixture(scope="session")
def image() -> str:
    """Tag of the image under test."""
    return os.environ["YOLOV9_TEST_IMAGE"]


@pytest.fixture(scope="session", name="docker")
def docker_client() -> Callable[..., subprocess.CompletedProcess[str]]:
    """The docker client."""
    return docker


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def quiet() -> Callable[[str, Sequence[str]], None]:
    """Fails on a log with lines that tell of trouble."""
    return assert_quiet


@pytest.fixture(scope="session")
def stop() -> Callable[..., float]:
    """Stops a container as `docker stop` does, and returns the seconds it took."""

    def stop_one(container: Container, grace_s: int) -> float:
        start_s = time.monotonic()
        docker("stop", "--time", grace_s, container.name, timeout_s=grace_s + 30)
        return time.monotonic() - start_s

    return stop_one


@pytest.fixture
def compose(image: str, data_dir: Path, runs_dir: Path) -> Iterator[Callable[..., str]]:
    """Runs docker compose on the repository's files with tiny jobs; removes them after the test."""
    variables = {
        "IMAGE": image,
        "DATA": str(data_dir),
        "RUNS": str(runs_dir),
        "IMG_SIZE": "64",
    }
    changeable = {"MODEL": "yolov9-t", "EPOCHS": "1"}
    project = f"yolov9-test-{uuid.uuid4().hex[:12]}"

    def run_compose(*words: str) -> str:
        command = ["docker", "compose", "--project-name", project, *words]
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
            check=False,
            cwd=ROOT,
            env={**changeable, **os.environ, **variables},
        )
        if result.returncode:
            pytest.fail(f"{' '.join(command)}: exit code {result.returncode}\n{result.stdout}\n{result.stderr}")
        return result.stdout

    yield run_compose
    run_compose("--profile", "*", "down", "--volumes", "--timeout", "5")


@pytest.fixture
def compose_cpu(compose: Callable[..., str]) -> Callable[..., str]:
    """The same with the override file for machines without a GPU."""
    return lambda *words: compose("-f", "docker-compose.yml", "-f", "docker-compose.cpu.yml", *words)


@pytest.fixture
def up_together(compose_cpu: Callable[..., str]) -> Callable[..., None]:
    """Starts services at the same time. In one command, the second would wait for the first to be healthy."""

    def start_each(*names: str) -> None:
        for name in names:
            compose_cpu("up", "--no-build", "--detach", "--no-deps", name)

    return start_each


@pytest.fixture
def service(compose_cpu: Callable[..., str]) -> Callable[[str], Container]:
    """Returns the container of a service."""
    return lambda name: Container(compose_cpu("ps", "--all", "--quiet", name).strip())


@pytest.fixture(scope="session")
def inspect() -> Callable[[str], dict]:
    """Returns what the engine knows of an image or a container."""
    return lambda name: json.loads(docker("inspect", name).stdout)[0]


def starter(image: str) -> Iterator[Start]:
    """Starts containers without a network and removes them at the end."""
    names: list[str] = []

    def start_one(*words: object, options: Sequence[object] = (), of: str = image) -> Container:
        names.append(f"yolov9-test-{uuid.uuid4().hex[:12]}")
        docker("run", "--detach", "--name", names[-1], "--network", "none", *options, of, *words)
        return Container(names[-1])

    yield start_one
    for name in names:
        docker("rm", "--force", "--volumes", name)


@pytest.fixture
def start(image: str) -> Iterator[Start]:
    """Starts containers for one test."""
    yield from starter(image)


@pytest.fixture(scope="module")
def start_for_all(image: str) -> Iterator[Start]:
    """Starts containers for all tests of a file, so that they run at the same time."""
    yield from starter(image)


@pytest.fixture
def run(start: Start) -> Run:
    """Runs a container to its end, asserts its exit code and a log without trouble, and returns the log."""

    def run_one(
        *words: object, options: Sequence[object] = (), exit_code: int = 0, expected: Sequence[str] = ()
    ) -> str:
        container = start(*words, options=options)
        got = container.wait()
        log = container.log()
        assert got == exit_code, f"exit code {got}, wanted {exit_code}:\n{log}"
        assert_quiet(log, expected)
        return log

    return run_one


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    """Folder for results that any user may write to."""
    folder = tmp_path / "runs"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@pytest.fixture
def tree_hash() -> Callable[[Path], str]:
    """Returns a hash over names, modes, times and contents of everything below a folder."""

    def hash_of(folder: Path) -> str:
        digest = hashlib.sha256()
        for path in sorted(folder.rglob("*")):
            status = path.stat()
            digest.update(f"{path.relative_to(folder)} {status.st_mode} {status.st_mtime_ns}\n".encode())
            digest.update(path.read_bytes() if path.is_file() else b"")
        return digest.hexdigest()

    return hash_of


def write_tiny_dataset(folder: Path, *, train: int = 8, val: int = 8) -> None:
    """A data set that trains in seconds: grey noise with one bright square each, two classes by brightness.

    Beside it lies tiny.yaml, a model of five layers.
    """
    rng = np.random.default_rng(0)
    for split, pictures in (("train", train), ("val", val)):
        (folder / "images" / split).mkdir(parents=True)
        (folder / "labels" / split).mkdir(parents=True)
        for number in range(pictures):
            pixels = rng.integers(0, 80, (96, 128, 3), dtype=np.uint8)
            left, top = rng.integers(4, 60, 2)
            pixels[top : top + 32, left : left + 32] = 150 + 100 * (number % 2)
            Image.fromarray(pixels).save(folder / f"images/{split}/{number}.png")
            row = f"{number % 2} {(left + 16) / 128:.6f} {(top + 16) / 96:.6f} {32 / 128:.6f} {32 / 96:.6f}\n"
            (folder / f"labels/{split}/{number}.txt").write_text(row)
    shutil.copy(ROOT / "tests/unit/engine/tiny-graph.yaml", folder / "tiny.yaml")
    (folder / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [dim, bright]\n")


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A tiny data set; nobody but its owner may write to it."""
    folder = tmp_path / "data"
    folder.mkdir()
    write_tiny_dataset(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for tests that leave the checking of it to others."""
    folder = tmp_path_factory.mktemp("data")
    folder.chmod(0o755)
    write_tiny_dataset(folder)
    return folder


@pytest.fixture(scope="session")
def larger_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One with a whole batch of 32 pictures to train on."""
    folder = tmp_path_factory.mktemp("larger")
    folder.chmod(0o755)
    write_tiny_dataset(folder, train=32, val=4)
    return folder


@pytest.fixture(scope="session")
def gpu_options() -> list[str]:
    """Options that pass the pretended GPU of a test machine into a container."""
    options = ["--rm", "--gpus", "all"]
    shown = docker("run", *options, "--entrypoint", "nvidia-smi", os.environ["YOLOV9_TEST_IMAGE"], "-L", check=False)
    if shown.returncode or "Fake" not in shown.stdout:
        pytest.skip(f"no pretended GPU on this engine: {(shown.stdout or shown.stderr).strip()[-200:]}")
    return options[1:]
