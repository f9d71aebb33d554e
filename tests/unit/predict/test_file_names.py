"""Names that others chose never lead out of the run folder."""

import os

from hypothesis import given
from hypothesis import strategies as st

from yolov9.engine.file_names import LONGEST_NAME_BYTES, UniqueNames, safe_name


@given(st.text())
def test_any_text_becomes_one_path_component(text: str):
    name = safe_name(text)
    assert name not in ("", ".", "..")
    assert not set(name) & set("/\\\0\n")
    assert len(os.fsencode(name)) <= LONGEST_NAME_BYTES


def test_path_traversal_is_taken_apart():
    assert safe_name("../../etc/passwd") == "_.._etc_passwd"
    assert safe_name("..") == "unnamed"
    assert safe_name("/etc") == "_etc"


def test_letters_of_any_script_stay():
    assert safe_name("größe_写真 1") == "größe_写真 1"


def test_long_texts_that_differ_at_their_end_stay_apart():
    assert safe_name("写" * 300 + "a") != safe_name("写" * 300 + "b")


def test_undecodable_bytes_survive():
    assert os.fsencode(safe_name(os.fsdecode(b"caf\xe9"))) == b"caf\xe9"


def test_two_files_of_one_name_get_two_names():
    names = UniqueNames()
    assert [names.name(path) for path in ("a/x.jpg", "b/x.jpg", "a/x.jpg", "b/X.png")] == ["x", "x_2", "x", "X_3"]


def test_a_stream_address_becomes_a_name():
    assert UniqueNames().name("rtsp://user:***@10.0.0.1:554/cam?a=b") == "user____@10.0.0.1_554_cam_a=b"
