"""Two processes that train one model."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from yolov9.config.environment import Environment
from yolov9.engine.checkpoint import read_training_checkpoint
from yolov9.engine.distributed import least_of_ranks, process_group

USUAL_PORT = 29500
"""MASTER_PORT where nothing else is said."""
GRAPH = Path(__file__).parent / "tiny-graph.yaml"
REPOSITORY = Path(__file__).parents[3]


def start_two_ranks(folder: Path, data: Path, **changes: Any) -> "subprocess.Popen[str]":
    settings = {
        "data": str(data),
        "cfg": str(GRAPH),
        "epochs": 2,
        "batch_size": 2,
        "optimisation_batch": 8,
        "imgsz": 64,
        "workers": 0,
        "device": "cpu",
        "noplots": True,
        **changes,
    }
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"command": "train", "settings": settings, "run_dir": str(folder / "run")}))
    command = [sys.executable, "-m", "entrypoint.ranks", "2", sys.executable, "-m", "yolov9", str(plan)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def train_with_two_ranks(folder: Path, data: Path, **changes: Any) -> str:
    with start_two_ranks(folder, data, **changes) as process:
        _, log = process.communicate(timeout=280)
    assert process.returncode == 0, log
    return log


def test_two_ranks_train_one_model_and_write_each_file_once(
    tmp_path: Path, tiny_data: Path, finished_run: Path
) -> None:
    log = train_with_two_ranks(tmp_path, tiny_data)
    both = read_training_checkpoint(tmp_path / "run" / "weights" / "last.pt")["training"]
    alone = read_training_checkpoint(finished_run / "weights" / "last.pt")["training"]
    # One process with batch 4 and two with batch 2 take the same steps over the same number of pictures.
    for name in ("epoch", "batch", "last_step", "optimizer_steps", "finished"):
        assert both["progress"][name] == alone["progress"][name]
    assert both["pictures_per_step"] == alone["pictures_per_step"] == 8
    assert log.count("epoch 2/2") == 1
    assert len((tmp_path / "run" / "results.csv").read_text().splitlines()) == 3


def test_p17_two_ranks_stop_at_the_same_step_and_go_on_from_one_file(tmp_path: Path, tiny_data: Path) -> None:
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    straight.mkdir()
    stopped.mkdir()
    train_with_two_ranks(straight, tiny_data, epochs=20)
    with start_two_ranks(stopped, tiny_data, epochs=20) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "epoch 2/20" in line:
                process.send_signal(signal.SIGTERM)
    log = "".join(lines)
    assert process.returncode == 75, log
    assert "Traceback" not in log
    places = re.findall(r"stopped in epoch (\d+) after (\d+) batches", log)
    assert len(places) == 2
    assert len(set(places)) == 1
    names = {file.name for file in (stopped / "run" / "weights").iterdir()}
    assert names <= {"last.pt", "last-previous.pt", "best.pt"}
    position = read_training_checkpoint(stopped / "run" / "weights" / "last.pt")["training"]["progress"]
    assert (str(position["epoch"] + 1), str(position["batch"])) == places[0]

    train_with_two_ranks(stopped, tiny_data, epochs=20, resume=str(stopped / "run"))
    one, two = (read_training_checkpoint(folder / "run" / "weights" / "last.pt") for folder in (straight, stopped))
    assert one["training"]["progress"]["optimizer_steps"] == two["training"]["progress"]["optimizer_steps"]
    assert len((stopped / "run" / "results.csv").read_text().splitlines()) == 21
    for name, value in one["model"].items():
        torch.testing.assert_close(two["model"][name], value, rtol=1e-4, atol=1e-5)


def test_p19_two_trainings_start_at_once_while_the_usual_port_is_taken(tmp_path: Path, tiny_data: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        with contextlib.suppress(OSError):  # somebody else listens there already
            listener.bind(("", USUAL_PORT))
            listener.listen()
        groups = [stack.enter_context(start_two_ranks(folder, tiny_data, epochs=1)) for folder in folders]
        for group in groups:
            _, log = group.communicate(timeout=280)
            assert group.returncode == 0, log


def test_p20_uneven_pictures_and_the_end_of_patience_leave_no_rank_waiting(tmp_path: Path, tiny_data: Path) -> None:
    data = tmp_path / "uneven" / "data.yaml"
    shutil.copytree(tiny_data.parent, data.parent)
    for picture in sorted((data.parent / "images" / "train").iterdir())[7:]:
        picture.unlink()
    log = train_with_two_ranks(tmp_path, data, epochs=50, patience=1)
    assert "no better score for 1 epochs" in log
    rows = (tmp_path / "run" / "results.csv").read_text().splitlines()[1:]
    assert 2 <= len(rows) < 50


def test_a_mistake_of_the_user_has_its_exit_code_and_no_traceback_on_two_ranks(tmp_path: Path) -> None:
    with start_two_ranks(tmp_path, tmp_path / "data.yaml") as process:
        _, log = process.communicate(timeout=280)
    assert process.returncode == 65, log
    assert "Traceback" not in log


def _least(rank: int, meeting_place: str, result: str) -> None:
    environment = Environment(rank=rank, local_rank=rank, world_size=2, rendezvous_file=Path(meeting_place))
    with process_group(environment, torch.device("cpu")) as ranks:
        Path(f"{result}{rank}").write_text(str(least_of_ranks((9, 7)[rank], ranks, torch.device("cpu"))))


def test_ranks_agree_on_the_smallest_number(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(_least, (str(tmp_path / "meeting"), str(tmp_path / "rank")), nprocs=2)
    assert [(tmp_path / f"rank{rank}").read_text() for rank in range(2)] == ["7", "7"]
