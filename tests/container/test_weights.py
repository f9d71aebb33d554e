"""The weights stage of the Dockerfile against a real local server."""

import hashlib
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

CONTENT = b"weights of a small model"
NAME = "yolov9-s-converted.pt"
Build = Callable[..., subprocess.CompletedProcess[str]]


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Keeps the test's output free of one line per request."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Address of a server that gives `CONTENT` under the name of official weights."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / NAME).write_bytes(CONTENT)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=folder)) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


@pytest.fixture
def build(
    tmp_path: Path, server: str, image: str, inspect: Callable[[str], dict], docker: Callable, root: Path
) -> Iterator[Build]:
    """Builds the weights stage; with another hash in the list when one is given. Its /weights comes to `out`."""
    base = inspect(image)["Config"]["Labels"]["org.opencontainers.image.base.name"]

    def run(weights: str, listed_sha256: str | None = None) -> subprocess.CompletedProcess[str]:
        context = tmp_path / "context"
        shutil.copytree(root / "env", context / "env")
        shutil.copy(root / "Dockerfile", context)
        if listed_sha256:
            manifest = json.loads((context / "env/weights.json").read_text())
            next(entry for entry in manifest["files"] if entry["file"] == NAME)["sha256"] = listed_sha256
            (context / "env/weights.json").write_text(json.dumps(manifest))
        arguments = {"BASE_IMAGE": base, "WEIGHTS": weights, "WEIGHTS_URL": server}
        words = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
        words += ["--target", "weights", "--network", "host", "--progress", "plain", "--iidfile", tmp_path / "id"]
        return docker("build", *words, context, timeout_s=300, check=False)

    yield run
    if (tmp_path / "id").exists():
        docker("rmi", (tmp_path / "id").read_text())


def test_the_listed_content_comes_into_the_image(build: Build, tmp_path: Path, docker: Callable) -> None:
    result = build("yolov9-s", hashlib.sha256(CONTENT).hexdigest())
    assert result.returncode == 0, result.stderr
    image = (tmp_path / "id").read_text()
    assert docker("run", "--rm", image, "cat", f"/weights/{NAME}").stdout.encode() == CONTENT


def test_another_content_fails_the_build_and_says_both_hashes(build: Build) -> None:
    result = build("yolov9-s")
    assert result.returncode != 0
    assert hashlib.sha256(CONTENT).hexdigest() in result.stderr
    assert "09bf9ca4adef37944f4406455b5b81b451c1e67307916e4702da68cda4d3e46d" in result.stderr


def test_none_leaves_the_folder_empty(build: Build, tmp_path: Path, docker: Callable) -> None:
    result = build("none")
    assert result.returncode == 0, result.stderr
    assert docker("run", "--rm", (tmp_path / "id").read_text(), "ls", "-A", "/weights").stdout == ""
