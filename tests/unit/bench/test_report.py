"""What the table says: limits, the setting to use, files."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from yolov9.engine.bench_report import Measured, best, draw_table, report_text, write_table

ROW = Measured(
    workers=2,
    batch=16,
    samples=1000,
    seconds=10.0,
    waiting=0.98,
    workers_busy=0.95,
    cpu_percent=190,
    disk_mb_s=0.0,
)


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({}, "CPU"),
        ({"workers_busy": 0.2, "disk_mb_s": 12.0}, "disk"),
        ({"step_ms": 20.0, "waiting": 0.02}, "GPU"),
        ({"step_ms": 20.0, "waiting": 0.4}, "CPU"),
        ({"step_ms": 20.0, "waiting": 0.4, "workers_busy": 0.3}, "disk"),
        ({"waiting": 0.02, "workers_busy": 0.9}, "CPU"),
    ],
)
def test_the_limit(changes: dict[str, float], limit: str) -> None:
    row = replace(ROW, **changes)
    assert row.limit == limit
    assert f"limit:  {limit}" in report_text([row])


def test_fewer_processes_win_when_they_are_about_as_fast() -> None:
    speeds = {1: 500, 2: 980, 4: 1000, 8: 990}
    rows = [replace(ROW, workers=workers, samples=samples) for workers, samples in speeds.items()]
    assert best(rows).workers == 2


def test_of_equal_pairs_the_largest_batch_wins() -> None:
    assert best([replace(ROW, batch=batch) for batch in (8, 32, 16)]).batch == 32


def test_without_a_gpu_the_report_says_what_was_measured_and_names_no_batch() -> None:
    text = report_text([ROW])
    assert "the loader alone was measured" in text
    assert text.splitlines()[-1] == "use:    --workers 2"


def test_with_a_gpu_the_batch_is_a_part_of_the_setting() -> None:
    text = report_text([replace(ROW, step_ms=12.5, waiting=0.0)])
    assert "loader alone" not in text
    assert text.splitlines()[-1] == "use:    --workers 2 --batch 16"
    assert "12.5" in text


def test_unknown_disk_speed_is_shown_as_unknown() -> None:
    assert " - " in report_text([replace(ROW, disk_mb_s=None)]).splitlines()[1]


def test_the_files_hold_all_rows(tmp_path: Path) -> None:
    rows = [replace(ROW, workers=workers) for workers in (1, 2)]
    with write_table(rows, tmp_path).open() as file:
        read = list(csv.DictReader(file))
    assert [(row["workers"], row["samples_s"], row["limit"]) for row in read] == [
        ("1", "100.0", "CPU"),
        ("2", "100.0", "CPU"),
    ]
    assert draw_table(rows, tmp_path).read_bytes().startswith(b"\x89PNG")
