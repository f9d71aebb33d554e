"""What is logged cannot act on the terminal it is shown on."""

import io

import pytest

from yolov9.errors import UserError
from yolov9.logs import LOG, setup_logging, show_result


def test_control_characters_of_a_file_name_are_shown_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    setup_logging()
    LOG.warning("%s: damaged", "a\x1b[2J\r\x07\x9b31m.png\tb\nERROR")
    assert "a\\x1b[2J\\x0d\\x07\\x9b31m.png\tb\\nERROR: damaged\n" in stream.getvalue()
    assert all(character.isprintable() or character in "\t\n" for character in stream.getvalue())
    assert stream.getvalue().count("\n") == 1


def test_a_traceback_keeps_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    setup_logging()
    try:
        raise ValueError("\x1b[2J")
    except ValueError:
        LOG.exception("internal error")
    assert stream.getvalue().splitlines()[1] == "Traceback (most recent call last):"
    assert stream.getvalue().splitlines()[-1] == "ValueError: \\x1b[2J"


def test_a_result_and_an_error_with_line_feeds_in_a_name_stay_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show_result("a\nb 0.5")
    assert capsys.readouterr().out == "a\\nb 0.5\n"
    assert str(UserError("a\ntype: rm", "b", "c")).splitlines() == ["found:  a\\ntype: rm", "needed: b", "type:   c"]
