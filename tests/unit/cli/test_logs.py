"""What is logged cannot act on the terminal it is shown on."""

import io

import pytest

from yolov9.logs import LOG, setup_logging


def test_control_characters_of_a_file_name_are_shown_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    setup_logging()
    LOG.warning("%s: damaged", "a\x1b[2J\r\x07\x9b31m.png\tb")
    assert "a\\x1b[2J\\x0d\\x07\\x9b31m.png\tb: damaged" in stream.getvalue()
    assert all(character.isprintable() or character in "\t\n" for character in stream.getvalue())
