"""The table of epochs has the columns that people's scripts read."""

from pathlib import Path

from yolov9.engine.logbook import COLUMNS


def test_results_csv_has_the_columns_of_the_reference(parity_dir: Path) -> None:
    (curve,) = (parity_dir / "curves").glob("*.csv")
    header = curve.read_text(encoding="utf-8").splitlines()[0]
    assert [name.strip() for name in header.split(",")] == list(COLUMNS)
