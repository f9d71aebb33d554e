"""`detect` as the entrypoint starts it: exit codes, messages, a stop by signal."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from yolov9.errors import ExitCode
from yolov9.model import build_model

TINY_GRAPH = {
    "nc": 2,
    "depth_multiple": 1.0,
    "width_multiple": 1.0,
    "layers": [
        [-1, 1, "Conv", [8, 3, 2]],
        [-1, 1, "Conv", [8, 3, 2]],
        [-1, 1, "Conv", [16, 3, 2]],
        [-1, 1, "Conv", [16, 3, 2]],
        [-1, 1, "Conv", [16, 3, 2]],
        [[2, 3, 4], 1, "DDetect", ["nc"]],
    ],
}
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A very small model that sees something nearly everywhere."""
    torch.manual_seed(0)
    model = build_model(TINY_GRAPH, nc=2)
    state = model.state_dict()
    for level in range(3):
        state[f"model.5.cv3.{level}.2.bias"] = torch.tensor([1.0, -1.0])
    path = tmp_path_factory.mktemp("weights") / "tiny.pt"
    content = {"format": "yolov9-checkpoint-1", "graph": model.graph, "graph_name": "tiny", "names": ["one", "two 二"]}
    torch.save({**content, "nc": 2, "model": state, "ema": None, "epoch": 0, "training": None}, path)
    return path


@pytest.fixture
def plan(tmp_path: Path, weights: Path) -> Callable[..., Path]:
    """Writes a plan for a run in tmp_path/run."""

    def write(**options: object) -> Path:
        settings = {"weights": str(weights), "imgsz": 64, "device": "cpu", "max_det": 5, **options}
        path = tmp_path / "plan.json"
        path.write_text(json.dumps({"command": "detect", "settings": settings, "run_dir": str(tmp_path / "run")}))
        return path

    return write


@pytest.fixture
def detect(plan: Callable[..., Path]) -> Command:
    def run(**options: object) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "yolov9", str(plan(**options))]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env=_environment(), check=False)

    return run


def _environment() -> dict[str, str]:
    """A plain locale, as in a bare container."""
    return {**os.environ, "LANG": "C", "LC_ALL": "C", "OMP_NUM_THREADS": "1"}


def test_odd_pictures_of_real_life_are_looked_at(detect: Command, real_data_dir: Path, tmp_path: Path):
    result = detect(source=str(real_data_dir / "odd" / "images"), save_txt=True, save_json=True)
    assert result.returncode == ExitCode.DONE, result.stderr
    assert "Traceback" not in result.stderr
    assert "\r" not in result.stderr
    assert "\x1b" not in result.stderr
    labels = {path.stem for path in (tmp_path / "run" / "labels").iterdir()}
    assert {"größe_写真", "my photo (1)", "DSC_0001", "phone_rotated_6", "many.dots.in.name.v1.0"} <= labels
    assert not {"empty_file", "download_failed", "header_claims_25000"} & labels
    rows = json.loads((tmp_path / "run" / "predictions.json").read_text())
    assert {row["name"] for row in rows} <= {"one", "two 二"}
    upright = cv2.imread(str(tmp_path / "run" / "phone_rotated_6.jpg"))
    assert upright.shape[1] > upright.shape[0]


def test_a_missing_picture_is_a_usage_error(detect: Command, tmp_path: Path):
    result = detect(source="./data/images/horses.jpg")
    assert result.returncode == ExitCode.USAGE
    assert "horses.jpg" in result.stderr
    assert "sample picture" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_broken_picture_is_a_data_error(detect: Command, tmp_path: Path):
    (tmp_path / "bad.jpg").write_bytes(b"\xff\xd8\xff no picture")
    result = detect(source=str(tmp_path / "bad.jpg"))
    assert result.returncode == ExitCode.BAD_DATA
    assert "Traceback" not in result.stderr


def test_a_gpu_that_is_not_there_has_its_own_exit_code(detect: Command, tmp_path: Path):
    result = detect(source=str(tmp_path), device="77")
    assert result.returncode == ExitCode.NO_GPU
    assert "--device cpu" in result.stderr


def test_a_results_folder_that_cannot_be_made_has_its_own_exit_code(detect: Command, tmp_path: Path):
    cv2.imwrite(str(tmp_path / "x.png"), np.zeros((40, 40, 3), np.uint8))
    (tmp_path / "run").write_text("a file where the folder should be")
    result = detect(source=str(tmp_path / "x.png"))
    assert result.returncode == ExitCode.OUTPUT_NOT_WRITABLE
    assert "Traceback" not in result.stderr


class _EndlessCamera(BaseHTTPRequestHandler):
    """An MJPEG stream that never ends by itself."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
        self.end_headers()
        data = cv2.imencode(".jpg", np.full((48, 64, 3), 90, np.uint8))[1].tobytes()
        head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        try:
            while not self.server.closing.wait(0.01):  # type: ignore[attr-defined]
                self.wfile.write(head + data + b"\r\n")
        except ConnectionError:
            return

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def camera() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _EndlessCamera)
    server.closing = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/camera"
    server.closing.set()  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_stop_leaves_complete_files(plan: Callable[..., Path], camera: str, tmp_path: Path):
    command = [sys.executable, "-m", "yolov9", str(plan(source=camera, save_json=True, save_txt=True))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=_environment()) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "live" in line:
                process.send_signal(signal.SIGTERM)
                break
        lines += process.stderr.readlines()
        assert process.wait(60) == ExitCode.STOPPED_RESUMABLE, "".join(lines)
    rows = json.loads((tmp_path / "run" / "predictions.json").read_text())
    assert rows
    capture = cv2.VideoCapture(str(next((tmp_path / "run").glob("*.mp4"))))
    assert capture.read()[0]
    capture.release()
