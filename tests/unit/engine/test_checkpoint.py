"""Files that survive crashes and errors while they are written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from yolov9.engine.atomic_file import previous_of, write_atomically, write_text_atomically
from yolov9.engine.checkpoint import (
    FORMAT,
    ModelFacts,
    Progress,
    final_content,
    newest_loadable,
    read_training_checkpoint,
    training_content,
    write_checkpoint,
)
from yolov9.engine.checkpoint_writer import CheckpointWriter, WriteJob
from yolov9.engine.host_copy import all_finite, copy_to_host
from yolov9.errors import DataError, UserError

TRAINING = {
    **dict.fromkeys(("ema_updates", "batches_per_epoch", "batch", "world", "pictures_per_step"), 1),
    **{"optimizer": {"kind": "SGD", "state": {}}, "gradients": {}, "scaler": {}, "rng": {}, "recipe": {}},
    "settings": {"epochs": 3, "patience": 100},
}
FACTS = ModelFacts({"layers": []}, "tiny", ["a", "b"])


def content(value: float, size: int = 1000) -> dict[str, object]:
    tensors = {"weight": torch.full((size,), value), "steps": torch.tensor(3)}
    return training_content(FACTS, Progress(epoch=2), tensors, tensors, TRAINING)


def value_in(path: Path) -> float:
    return float(read_training_checkpoint(path)["model"]["weight"][0])


def test_a_written_file_comes_back(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "last.pt", content(1.5), keep_previous=True)
    read = read_training_checkpoint(tmp_path / "last.pt")
    assert read["format"] == FORMAT
    assert read["training"]["progress"]["epoch"] == 2
    assert (read["nc"], read["names"]) == (2, ["a", "b"])
    assert value_in(tmp_path / "last.pt") == 1.5


def test_the_generation_before_is_kept(tmp_path: Path) -> None:
    for value in (1.0, 2.0, 3.0):
        write_checkpoint(tmp_path / "last.pt", content(value), keep_previous=True)
    assert value_in(tmp_path / "last.pt") == 3
    assert value_in(tmp_path / "last-previous.pt") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last-previous.pt", "last.pt"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    write_checkpoint(path, content(1.0), keep_previous=True)
    # /dev/full answers every write with "no space left on device".
    (tmp_path / "last.pt.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_checkpoint(path, content(2.0, size=2_000_000), keep_previous=True)
    assert value_in(path) == 1
    assert not (tmp_path / "last.pt.partial").is_symlink()


def test_a_failing_writer_leaves_the_old_text(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    write_text_atomically(path, "old")

    def fail(file: object) -> None:
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="middle"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["results.csv"]


KILLED_WHILE_SAVING = """
import os, sys
from pathlib import Path
sys.path[:0] = {paths!r}
from yolov9.engine.atomic_file import write_atomically
def write(file):
    file.write(b"half of")
    os.kill(os.getpid(), 9)
write_atomically(Path(sys.argv[1]), write, keep_previous=True)
"""


def test_p16_a_kill_while_saving_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    write_checkpoint(path, content(1.0), keep_previous=True)
    code = KILLED_WHILE_SAVING.format(paths=[str(Path.cwd()), *sys.path])
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
    assert value_in(path) == 1


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "text"])
def test_p16_a_damaged_file_is_found_and_the_one_before_is_taken(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "weights" / "last.pt"
    path.parent.mkdir()
    for value in (1.0, 2.0):
        write_checkpoint(path, content(value, size=50_000), keep_previous=True)
    data = bytearray(path.read_bytes())
    # torch itself reads the flipped bit without a word.
    data[len(data) // 2] ^= 1
    changed = {"cut": bytes(data[: len(data) // 3]), "flip": bytes(data), "empty": b"", "text": b"hello"}[damage]
    path.write_bytes(changed)
    with pytest.raises(UserError):
        read_training_checkpoint(path)
    found, loaded = newest_loadable(tmp_path)
    assert found == previous_of(path)
    assert float(loaded["model"]["weight"][0]) == 1


def test_a_damaged_file_without_one_before_names_best_pt_and_never_itself(tmp_path: Path) -> None:
    last, best = tmp_path / "last.pt", tmp_path / "best.pt"
    last.write_bytes(b"cut off")
    best.touch()
    with pytest.raises(DataError, match="damaged") as caught:
        newest_loadable(last)
    assert str(best) in caught.value.remedy
    assert f"--weights {last}" not in caught.value.remedy


def test_nothing_to_resume_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"last\.pt"):
        newest_loadable(tmp_path / "exp")


def test_a_file_for_detection_cannot_be_resumed(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "best.pt", final_content(FACTS, {"w": torch.ones(2)}, 5), keep_previous=False)
    with pytest.raises(UserError, match="no training state"):
        read_training_checkpoint(tmp_path / "best.pt")


class Payload:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("executed",)


def test_a_pickle_with_code_is_refused_and_its_code_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"format": FORMAT, "training": Payload()}, tmp_path / "last.pt")
    with pytest.raises(UserError):
        read_training_checkpoint(tmp_path / "last.pt")
    assert not (tmp_path / "executed").exists()


def test_the_writer_keeps_order_and_tells_about_errors(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with CheckpointWriter() as writer:
        for value in (1.0, 2.0):
            writer.submit(WriteJob(tmp_path / "last.pt", content(value), keep_previous=True))
        writer.wait()
        assert value_in(tmp_path / "last.pt") == 2
        writer.submit(WriteJob(tmp_path / "absent" / "last.pt", content(3.0)))
        writer.wait()
        assert set(writer.errors) == {tmp_path / "absent" / "last.pt"}
        assert "could not be written" in caplog.text
        writer.submit(WriteJob(tmp_path / "last.pt", content(4.0)))
        writer.wait()
        assert set(writer.errors) == {tmp_path / "absent" / "last.pt"}, "that file is still not there"


def test_a_host_copy_does_not_follow_its_original() -> None:
    original = {"a": torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last), "b": torch.tensor(5)}
    copy = copy_to_host(original)
    original["a"].add_(1)
    original["b"].add_(1)
    assert float(copy["a"].sum()) == 0
    assert int(copy["b"]) == 5
    assert copy["a"].is_contiguous()


def test_weights_that_are_not_finite_are_noticed() -> None:
    assert all_finite({"a": torch.ones(3), "n": torch.tensor(1)})
    assert not all_finite({"a": torch.ones(3), "b": torch.tensor([1.0, float("nan")])})


def test_a_value_that_half_precision_does_not_hold_stays_as_it_is() -> None:
    average = {"weight": torch.tensor([0.1, -2.0]), "variance": torch.tensor([1.0, 1e6]), "batches": torch.tensor(3)}
    kept = final_content(FACTS, average, 1)["model"]
    assert [kept[name].dtype for name in average] == [torch.float16, torch.float32, torch.int64]
    assert torch.equal(kept["variance"], average["variance"])
