"""The health command: process trees on paper, and real heartbeats with a clock on paper."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.cli import main
from yolov9.config.environment import read_environment
from yolov9.engine.heartbeat import Beat, Heartbeat, heartbeat_file, read_heartbeat
from yolov9.logs import LOG

PLAN = "/runs/train/exp/plan.json"
TRAINER = f"python\0-P\0-m\0yolov9\0{PLAN}\0"
Ask = Callable[..., tuple[int, str]]


def add_process(root: Path, pid: int, words: str, state: str) -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "cmdline").write_text(words)
    (folder / "stat").write_text(f"{pid} (python (a b)) {state} 1 1")


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Asks for the health of a machine whose temporary files lie in a folder of this test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def run(*words: str) -> tuple[int, str]:
        code = main(["health", "--root", str(tmp_path), *words])
        return code, capsys.readouterr().out.strip()

    return run


@pytest.fixture
def hearts(ask: Ask, tmp_path: Path) -> Callable[..., Heartbeat]:
    """Starts the heartbeat of a trainer in process 12; `hearts(100)` has a clock that lies 100 s in the past."""
    add_process(tmp_path, 12, TRAINER, "R")

    def start(*ages_s: float) -> Heartbeat:
        times = iter(time.monotonic() - age for age in ages_s)
        return Heartbeat(heartbeat_file(read_environment(), 12), lambda: next(times)).__enter__()

    return start


def test_no_job_is_healthy(ask: Ask, tmp_path: Path) -> None:
    add_process(tmp_path, 7, "bash\0", "S")
    assert ask() == (0, "no job runs")


def test_a_job_without_a_heartbeat_such_as_detect_is_healthy_while_it_runs(ask: Ask, tmp_path: Path) -> None:
    add_process(tmp_path, 1, "tini\0--\0python\0", "S")
    add_process(tmp_path, 12, TRAINER, "R")
    assert ask() == (0, f"{PLAN} runs")


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_trainer_that_is_held_is_not_healthy(ask: Ask, tmp_path: Path, state: str) -> None:
    add_process(tmp_path, 12, TRAINER, state)
    code, words = ask()
    assert code == 1
    assert "process 12" in words


def test_a_job_says_where_it_is_once_for_all_of_its_processes(
    ask: Ask, hearts: Callable[..., Heartbeat], tmp_path: Path
) -> None:
    add_process(tmp_path, 13, TRAINER, "S")
    hearts(20, 10).step("training, epoch 1, batch 1")
    code, words = ask()
    assert code == 0
    assert words.count(PLAN) == 1
    assert "training, epoch 1, batch 1, 1 steps" in words


def test_no_finished_step_within_the_timeout_is_not_healthy_and_says_why(
    ask: Ask, hearts: Callable[..., Heartbeat]
) -> None:
    hearts(420, 400).step("training, epoch 3, batch 17")
    code, words = ask()
    assert code == 1
    assert "nothing finished within 300 s" in words
    assert "epoch 3, batch 17" in words
    assert "400 s ago" in words
    assert ask("--timeout", "500")[0] == 0


def test_a_machine_whose_batches_take_minutes_is_given_more_time(ask: Ask, hearts: Callable[..., Heartbeat]) -> None:
    heart = hearts(2000, 1000, 700)
    heart.step("training")
    heart.step("training")
    assert ask("--timeout", "60")[0] == 0


def test_before_the_first_step_the_limit_is_that_of_checking_a_large_data_set(
    ask: Ask, hearts: Callable[..., Heartbeat]
) -> None:
    hearts(1000)
    assert ask()[0] == 0
    hearts(4000)
    assert ask()[0] == 1


def test_with_steps_it_is_healthy_only_after_so_many(
    ask: Ask, hearts: Callable[..., Heartbeat], tmp_path: Path
) -> None:
    assert ask("--steps", "2") == (1, f"{PLAN}: no step yet")
    heart = hearts(50, 40, 30)
    heart.step("training")
    assert ask("--steps", "2")[0] == 1
    heart.step("training")
    assert ask("--steps", "2")[0] == 0


def test_with_steps_no_job_is_not_healthy(ask: Ask) -> None:
    assert ask("--steps", "2") == (1, "no job runs")


def test_the_file_is_written_once_a_second_and_goes_away_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "beat.json"
    times = iter([0.0, 0.1, 0.5, 1.2])
    with Heartbeat(file, lambda: next(times)) as heart:
        written = []
        for _ in range(3):
            heart.step("training")
            written.append(read_heartbeat(file))
        assert [beat and beat.steps for beat in written] == [1, 1, 3]
        assert list(tmp_path.iterdir()) == [file]
    assert not file.exists()


def test_a_link_that_somebody_left_in_its_place_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    for name in ("beat.json", "beat.new"):
        (tmp_path / name).symlink_to(precious)
    with Heartbeat(tmp_path / "beat.json") as heart:
        heart.step("training")
        assert precious.read_text() == "kept"
        assert read_heartbeat(tmp_path / "beat.json") is not None


def test_a_folder_that_cannot_be_written_is_said_once_and_disturbs_no_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", LOG.name), Heartbeat(tmp_path / "absent" / "beat.json") as heart:
        heart.step("training")
        heart.beat("validation")
    assert caplog.text.count("no heartbeat for `health`") == 1


def test_a_file_with_other_content_is_no_heartbeat(tmp_path: Path) -> None:
    file = tmp_path / "beat.json"
    for text in ("", "[]", '{"steps": 1}', "\x00"):
        file.write_text(text)
        assert read_heartbeat(file) is None


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    file = tmp_path / "beat.json"
    times = iter([1.0, 3.0, 10.0])
    with Heartbeat(file, lambda: next(times)) as heart:
        heart.step("first")
        heart.beat("validation")
        beat = read_heartbeat(file)
    assert beat is not None
    assert beat == Beat(doing="validation", steps=1, at_s=10.0, longest_s=7.0, started_ticks=beat.started_ticks)


def test_what_an_earlier_process_of_the_same_number_left_is_not_of_this_one(
    ask: Ask, hearts: Callable[..., Heartbeat], tmp_path: Path
) -> None:
    """A container that was killed and started again has the same process numbers and temporary files."""
    hearts(5000, 5000).step("training")
    own = Path("/proc/self/stat").read_text()
    stat = tmp_path / "proc" / "12" / "stat"
    stat.write_text(own)
    assert ask("--steps", "1")[0] == 1
    assert "nothing finished" in ask()[1]
    before, _, after = own.rpartition(")")
    later = after.split()
    later[19] = str(int(later[19]) + 1)
    stat.write_text(f"{before}) {' '.join(later)}")
    assert ask() == (0, f"{PLAN} runs")
    assert ask("--steps", "1") == (1, f"{PLAN}: no step yet")


@pytest.mark.parametrize("words", ["--timeout nan", "--timeout 0", "--timeout x", "--steps -1"])
def test_limits_that_cannot_be_are_refused(ask: Ask, words: str) -> None:
    assert ask(*words.split())[0] == 2
