"""The health check of a container that trains, and of one whose trainer stands still."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

HEALTH = ("python", "-m", "entrypoint", "health")
WORDS = ("train", "--data", "/data/data.yaml", "--cfg", "yolov9-t", "--img", "64", "--batch", "4", "--noplots")


def test_health_follows_a_training_and_fails_when_it_stands_still(
    start: Callable[..., Any], docker: Callable, tiny_data: Path, runs_dir: Path
) -> None:
    """With a read-only root and no tmpfs, where temporary files have to go elsewhere."""
    mounts = ["--volume", f"{tiny_data}:/data:ro", "--volume", f"{runs_dir}:/runs"]
    options = [*mounts, "--read-only", "--user", "12345:12345"]
    container = start(*WORDS, "--epochs", "500", options=options)
    container.wait_for(r"epoch 2/500:")
    asked = docker("exec", container.name, *HEALTH, "--steps", "3")
    assert "epoch" in asked.stdout
    assert docker("exec", container.name, *HEALTH, "--steps", "100000", check=False).returncode == 1
    # The loader stands still: the trainer waits for its next batch, as for a disk that does not answer.
    docker("exec", container.name, "pkill", "-STOP", "--full", "yolov9.data")
    for _ in range(150):
        asked = docker("exec", container.name, *HEALTH, "--timeout", "2", check=False)
        if asked.returncode:
            break
    assert asked.returncode == 1
    assert "nothing finished within" in asked.stdout
