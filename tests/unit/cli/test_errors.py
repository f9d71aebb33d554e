"""Messages of one line out of errors of any text."""

import pytest

from yolov9.errors import first_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError("CUDA error: no device\nand advice"), "CUDA error: no device"),
        (RuntimeError("\n  indented\n"), "indented"),
        (RuntimeError(), "RuntimeError"),
        (ValueError("\n"), "ValueError"),
    ],
)
def test_an_error_is_said_in_one_line_that_is_not_empty(error: Exception, line: str):
    assert first_line(error) == line
