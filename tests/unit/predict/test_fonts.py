"""Class names in any script get a font, or a visible stand-in."""

from pathlib import Path

import pytest

from yolov9.engine.fonts import LONGEST_LABEL, FontSet, machine_fonts, readable_names

NO_FONTS = FontSet((), bundled=False)
BUNDLED = FontSet(())


def test_ascii_text_is_one_run():
    assert [run.text for run in machine_fonts().runs("traffic light 0.87")] == ["traffic light 0.87"]


@pytest.mark.parametrize("text", ["автомобиль", "سيارة", "αυτοκίνητο", "רכב", "Größe"])
def test_scripts_of_the_bundled_font_need_no_system_font(text: str):
    assert BUNDLED.missing(text) == []


def test_a_cjk_font_of_debian_is_found():
    if machine_fonts().missing("汽车バス자동차"):
        pytest.skip("no CJK font here; install fonts-noto-cjk or fonts-wqy-microhei")
    runs = machine_fonts().runs("汽车 car")
    assert [run.text for run in runs] == ["汽车 car"] or runs[0].text.startswith("汽车")
    assert runs[0].font is not None


def test_a_character_without_a_font_gets_the_class_number(log_lines: list[str]):
    assert readable_names(["car", "\U000e0100x\u1b83"], BUNDLED)[1].startswith("1:")
    assert any("fonts-noto-cjk" in line for line in log_lines)


def test_without_any_font_file_the_built_in_font_remains():
    assert [run.font for run in NO_FONTS.runs("abc")] == [None]
    assert readable_names(["car", "汽车"], NO_FONTS) == ["car", "1:汽车"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nb\tc", "a b c"),
        ("\u202egnp.exe", "gnp.exe"),
        ("", "?"),
        ("\x00", "?"),
        ("%s {0} $x$ `id`", "%s {0} $x$ `id`"),
        ("x" * 500, "x" * (LONGEST_LABEL - 1) + "…"),
        ("bad \udcff byte", "bad byte"),
    ],
)
def test_a_name_is_shown_on_one_line_and_never_interpreted(name: str, shown: str):
    assert readable_names([name]) == [shown]


def test_a_broken_font_file_is_passed_over(tmp_path: Path):
    (tmp_path / "DejaVuSans.ttf").write_bytes(b"not a font")
    assert FontSet((tmp_path,), bundled=False).missing("é") == ["é"]


def test_joiners_inside_words_are_not_missing_characters():
    assert readable_names(["می\u200cخواهم"], BUNDLED) == ["می\u200cخواهم"]
