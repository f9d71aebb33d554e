"""The compiled change of colours against OpenCV, and what happens without a compiler."""

import shutil

import numpy as np
import pytest

from yolov9.data import compiled_colour as module
from yolov9.data.augment import bgr_to_rgb_with_hsv
from yolov9.data.compiled_colour import load_colour, share_compiled_colour

FACTORS = np.array(((1.008, 1.4, 0.73), (0.992, 0.6, 1.3), (1.015, 1.7, 1.4), (1.0, 1.0, 1.0)))


@pytest.fixture(autouse=True)
def compile_again():
    module._library.cache_clear()
    yield
    module._library.cache_clear()


@pytest.fixture
def compiled():
    if not any(shutil.which(name) for name in module.COMPILERS):
        pytest.skip("no C compiler on this machine")
    change = load_colour(share_compiled_colour(None))
    assert change is not bgr_to_rgb_with_hsv
    return change


def picture(height, width):
    """Smooth colours with some noise; grey, black and white among them."""
    rng = np.random.default_rng(0)
    x, y = np.arange(width)[None], np.arange(height)[:, None]
    planes = [127 + 90 * np.sin(x / (23 + 7 * k)) + 60 * np.cos(y / (31 + 5 * k)) for k in range(3)]
    made = np.stack(planes, axis=2) + rng.integers(-9, 10, (height, width, 3))
    made[:4], made[4:8], made[8:12] = 0, 114, 255
    return made.clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize("hw", [(300, 400), (20, 1), (13, 257), (16, 511)])
def test_it_gives_what_opencv_gives(compiled, factors, hw):
    source = picture(*hw)
    expected, found = np.empty_like(source), np.empty_like(source)
    bgr_to_rgb_with_hsv(source, expected, factors)
    compiled(source, found, factors)
    difference = np.abs(expected.astype(int) - found)
    assert (difference <= 2).mean() > 0.995
    assert difference.max() <= 18  # a hue that comes out two steps of 30 in 255 beside, at full saturation


@pytest.mark.parametrize("number", range(3))
def test_it_gives_what_the_original_gives(compiled, parity_dir, number):
    with np.load(parity_dir / "data" / "hsv.npz") as fixture:
        out = np.empty_like(fixture["image_bgr"][number])
        compiled(fixture["image_bgr"][number], out, fixture["factors"][number])
        assert (np.abs(out[..., ::-1].astype(int) - fixture["out_bgr"][number]) <= 2).mean() >= 0.99


def test_parts_of_larger_pictures_and_pictures_in_place(compiled):
    source = picture(60, 80)
    whole = np.empty_like(source)
    compiled(source, whole, FACTORS[0])
    out = np.full((100, 100, 3), 7, np.uint8)
    compiled(source[10:50, 20:70], out[5:45, 30:80], FACTORS[0])
    np.testing.assert_array_equal(out[5:45, 30:80], whole[10:50, 20:70])
    assert (out[:5] == 7).all()
    assert (out[5:45, 80:] == 7).all()
    compiled(source, source, FACTORS[0])
    np.testing.assert_array_equal(source, whole)


def test_no_factors_change_the_order_of_channels_only(compiled):
    source = picture(20, 20)
    out = np.empty_like(source)
    compiled(source, out, None)
    np.testing.assert_array_equal(out, source[..., ::-1])


def test_without_a_compiler_opencv_does_it_and_that_is_said(monkeypatch, tmp_path, caplog):
    caplog.set_level("INFO")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert load_colour(share_compiled_colour(None)) is bgr_to_rgb_with_hsv
    assert "no C compiler" in caplog.text


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo no such processor >&2; exit 1", "no such processor"),
        ("printf '\\377\\376' >&2; exit 1", "compiling failed"),
        ("sleep 1000 & wait", "timed out"),
        ('echo no library > "${@: -1}"', "made no library"),
        ("exit 0", "compiling failed"),
    ],
)
def test_a_compiler_that_fails_is_said(monkeypatch, tmp_path, caplog, script, words):
    """In any way: messages in no known letters, one that hangs with what it started, and one that does nothing."""
    caplog.set_level("INFO")
    broken = tmp_path / "cc"
    broken.write_text(f"#!/bin/bash\n{script}\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(module, "COMPILE_TIMEOUT_S", 2.0)
    kept = tmp_path / "kept"
    assert load_colour(share_compiled_colour(kept)) is bgr_to_rgb_with_hsv
    assert words in caplog.text
    assert not list(kept.iterdir()), "nothing that failed is kept"


def test_the_result_is_kept_for_later_runs(compiled, tmp_path):
    module._library.cache_clear()
    first = share_compiled_colour(tmp_path)
    (kept,) = tmp_path.iterdir()
    before = kept.stat().st_ino
    module._library.cache_clear()
    assert load_colour(share_compiled_colour(tmp_path)) is not bgr_to_rgb_with_hsv
    assert first is not None
    assert [path.stat().st_ino for path in tmp_path.iterdir()] == [before]


def test_a_kept_file_that_others_may_write_is_not_loaded(compiled, tmp_path):
    module._library.cache_clear()
    share_compiled_colour(tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(b"something else")
    kept.chmod(0o666)
    module._library.cache_clear()
    assert load_colour(share_compiled_colour(tmp_path)) is not bgr_to_rgb_with_hsv
    assert kept.read_bytes() != b"something else"


def test_a_cache_folder_that_cannot_be_made_is_done_without(compiled, tmp_path):
    module._library.cache_clear()
    (tmp_path / "file").write_text("")
    assert load_colour(share_compiled_colour(tmp_path / "file" / "cache")) is not bgr_to_rgb_with_hsv


@pytest.mark.parametrize("part", [0.0, 0.5])
def test_a_part_of_a_kept_file_is_not_loaded(compiled, tmp_path, part):
    """A power cut may leave one; code that is cut off would end every loader process."""
    module._library.cache_clear()
    share_compiled_colour(tmp_path)
    (kept,) = tmp_path.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[: int(part * len(whole))])
    module._library.cache_clear()
    assert load_colour(share_compiled_colour(tmp_path)) is not bgr_to_rgb_with_hsv
    assert kept.read_bytes() == whole
