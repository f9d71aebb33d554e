"""results.csv, progress lines, the run folder."""

from pathlib import Path

import pytest

from yolov9.engine.logbook import COLUMNS, ProgressLines, ResultsFile, epoch_values
from yolov9.engine.result_folder import make_run_folder
from yolov9.errors import ExitCode, UserError


def values(number: float) -> dict[str, float]:
    return epoch_values((number,) * 3, (0.5,) * 4, (0.1,) * 3, (0.01,) * 3)


def test_columns_are_those_of_the_reference(parity_dir: Path) -> None:
    header = (parity_dir / "curves" / "bccd-yolov9-s-seed0.csv").read_text().splitlines()[0]
    assert tuple(header.split(",")) == COLUMNS


def test_a_resumed_file_has_the_rows_of_its_checkpoint_and_no_epoch_twice(tmp_path: Path) -> None:
    remembered: list[list[str]] = []
    first = ResultsFile(tmp_path / "results.csv", remembered)
    for epoch in range(3):
        first.add(epoch, values(epoch))
    second = ResultsFile(tmp_path / "results.csv", remembered[:2])
    second.add(2, values(20))
    second.add(3, values(30))
    rows = [line.split(",")[:2] for line in (tmp_path / "results.csv").read_text().splitlines()[1:]]
    assert rows == [["0", "0"], ["1", "1"], ["2", "20"], ["3", "30"]]


def test_rows_that_could_not_be_written_come_with_the_next_epoch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    results = ResultsFile(tmp_path / "later" / "results.csv", [])
    results.add(0, values(0))
    assert "could not be written" in caplog.text
    (tmp_path / "later").mkdir()
    results.add(1, values(1))
    assert len((tmp_path / "later" / "results.csv").read_text().splitlines()) == 3


def test_a_row_that_could_not_be_written_is_tried_again_at_the_end(tmp_path: Path) -> None:
    results = ResultsFile(tmp_path / "later" / "results.csv", [])
    results.add(0, values(0))
    (tmp_path / "later").mkdir()
    results.complete()
    assert len((tmp_path / "later" / "results.csv").read_text().splitlines()) == 2


def test_an_epoch_without_validation_has_empty_scores(tmp_path: Path) -> None:
    results = ResultsFile(tmp_path / "results.csv", [])
    results.add(0, epoch_values((1.0, 2.0, 3.0), (), (), (0.1, 0.2, 0.3)))
    assert (tmp_path / "results.csv").read_text().splitlines()[1] == "0,1,2,3,,,,,,,,0.1,0.2,0.3"


def test_a_line_is_due_every_thirty_seconds() -> None:
    now = [0.0]
    lines = ProgressLines(clock=lambda: now[0])
    due = []
    for second in range(100):
        now[0] = float(second)
        if lines.due():
            due.append(second)
    assert due == [30, 60, 90]


def test_a_run_folder_that_is_a_file_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(UserError) as caught:
        make_run_folder(tmp_path / "run")
    assert caught.value.exit_code == ExitCode.OUTPUT_NOT_WRITABLE
