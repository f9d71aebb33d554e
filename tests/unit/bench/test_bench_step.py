"""The benchmark of the training step, on the CPU."""

import pytest

from yolov9.engine.bench_step import main


def test_each_path_gives_a_row_of_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--models", "gelan-t", "--batches", "1", "--img", "64", "--device", "cpu"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[:3] for row in rows] == [["gelan-t", "1", "fast"], ["gelan-t", "1", "plain"]]
    for row in rows:
        speed, step_ms, busy = float(row[3]), float(row[4]), row[6]
        assert speed == pytest.approx(1e3 / step_ms, rel=0.1)
        assert busy == "-"  # only a GPU has a share of busy time
