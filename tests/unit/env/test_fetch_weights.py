"""The weights downloader, run as the image build runs it, against a real local server."""

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ENV_DIR = Path(__file__).parents[3] / "env"
CONTENT = b"weights of a small model"

Fetch = Callable[..., subprocess.CompletedProcess[str]]


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Keeps the test's output free of one line per request."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Address of a server whose files lie in `tmp_path/served`."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "model-a-converted.pt").write_bytes(CONTENT)
    (folder / "model-b.pt").write_bytes(CONTENT + b" and more")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=folder)) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


@pytest.fixture
def fetch(tmp_path: Path, server: str) -> Fetch:
    """Runs the downloader on a list of three files: model-b.pt has another content, model-c.pt no known hash."""
    digest = hashlib.sha256(CONTENT).hexdigest()
    entry = {"kind": "", "bytes": len(CONTENT), "sha256": digest, "how_sure": "2 texts", "sources": ["readme"]}
    manifest = tmp_path / "weights.json"
    files = [
        {**entry, "file": "model-a-converted.pt"},
        {**entry, "file": "model-b.pt"},
        {**entry, "file": "model-c.pt", "sha256": None},
    ]
    release = {"url": "http://127.0.0.1:9/{file}", "licence": "GPL-3.0"}
    manifest.write_text(json.dumps({"release": release, "files": files, "sources": {"readme": "the README"}}))

    def run(weights: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, ENV_DIR / "fetch_weights.py", "--manifest", manifest, "--out", tmp_path / "out"]
        command += ["--weights", weights, *(options or ("--url", server))]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    return run


def test_a_model_name_brings_the_converted_file_with_the_listed_content(fetch: Fetch, tmp_path: Path) -> None:
    result = fetch("model-a")
    assert result.returncode == 0, result.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model-a-converted.pt"]
    assert (tmp_path / "out/model-a-converted.pt").read_bytes() == CONTENT


def test_another_content_fails_with_both_hashes_and_their_source_and_leaves_nothing(
    fetch: Fetch, tmp_path: Path
) -> None:
    result = fetch("model-b")
    assert result.returncode == 1
    for part in (hashlib.sha256(CONTENT).hexdigest(), hashlib.sha256(CONTENT + b" and more").hexdigest()):
        assert part in result.stderr
    assert "the README" in result.stderr
    assert "2 texts" in result.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_a_file_without_a_known_hash_is_refused(fetch: Fetch, tmp_path: Path) -> None:
    result = fetch("model-c.pt")
    assert result.returncode == 1
    assert "no SHA-256 is known for model-c.pt" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_unknown_name_is_answered_with_the_known_ones(fetch: Fetch) -> None:
    result = fetch("model-x")
    assert result.returncode == 1
    assert "'model-x'" in result.stderr
    assert "model-a-converted.pt, model-b.pt" in result.stderr


@pytest.mark.parametrize("wish", ["", "none"])
def test_none_makes_an_empty_folder(fetch: Fetch, tmp_path: Path, wish: str) -> None:
    result = fetch(wish)
    assert result.returncode == 0, result.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_all_leaves_out_what_cannot_be_checked(fetch: Fetch, server: str, tmp_path: Path) -> None:
    (tmp_path / "served/model-b.pt").write_bytes(CONTENT)
    result = fetch("all")
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["model-a-converted.pt", "model-b.pt"]


def test_names_are_separated_by_commas_or_blanks_and_count_once(fetch: Fetch, tmp_path: Path) -> None:
    result = fetch("model-a, model-a-converted.pt")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("model-a-converted.pt: ") == 1


def test_a_server_that_does_not_answer_is_named_without_a_traceback(fetch: Fetch) -> None:
    result = fetch("model-a", "--url", "")
    assert result.returncode == 1
    assert "http://127.0.0.1:9/model-a-converted.pt cannot be downloaded" in result.stderr
    assert "Traceback" not in result.stderr


def test_each_hash_of_the_real_list_has_a_source_that_is_explained() -> None:
    content = json.loads((ENV_DIR / "weights.json").read_text())
    for entry in content["files"]:
        assert entry["sources"], entry["file"]
        assert set(entry["sources"]) <= set(content["sources"]), entry["file"]
        assert entry["sha256"] is None or len(bytes.fromhex(entry["sha256"])) == hashlib.sha256().digest_size
