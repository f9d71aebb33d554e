"""The table of `check`."""

from entrypoint.check import FAIL, machine_checks
from entrypoint.host import read_facts


def test_a_row_that_is_no_fail_has_no_exit_code() -> None:
    rows = [(check.name, check.exit_code) for check in machine_checks(read_facts()) if check.status != FAIL]
    assert ("Python", 0) in rows
    assert [row for row in rows if row[1]] == []
