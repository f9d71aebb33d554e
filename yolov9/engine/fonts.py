"""Finds fonts that can show a class name, whatever script it is written in. Nothing is downloaded.

Folders are searched in the order of `FONT_FOLDERS`, then the fonts that come with matplotlib (DejaVu: Latin, Greek,
Cyrillic, Arabic, Hebrew). Within them the files of `PREFERRED_FILES` come first and every other font file after them,
by name. Chinese, Japanese and Korean need one of Debian's packages fonts-noto-cjk or fonts-wqy-microhei.
"""

import importlib.util
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from PIL import ImageFont

from yolov9.logs import LOG

FONT_FOLDERS = (Path("/usr/local/share/fonts"), Path("/usr/share/fonts"), Path("/usr/share/texmf/fonts"))
"""Where Debian and its packages keep fonts; fonts of one's own are mounted into the first."""

PREFERRED_FILES = (
    "DejaVuSans.ttf",
    "NotoSansCJK-Regular.ttc",
    "wqy-microhei.ttc",
    "wqy-zenhei.ttc",
    "NotoSans-Regular.ttf",
    "DroidSansFallbackFull.ttf",
)
"""Fonts tried first, for an even look; the same file in two folders counts once."""

FONT_SUFFIXES = frozenset({".ttf", ".ttc", ".otf"})

MOST_OTHER_FONTS = 300
"""Font files beyond the preferred ones that are opened in search of a character; bounds the time of that search."""

UNDRAWABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: control, format (right-to-left override and the like), unpaired surrogates, line separators."""

LONGEST_LABEL = 48
"""Characters of a class name that are shown; a longer one ends in an ellipsis."""

JOINERS = frozenset("\u200c\u200d")
"""Zero-width (non-)joiner: shape the letters of Persian and Indic words and have no picture of their own."""

MISSING_FONT_REMEDY = "install the Debian package fonts-noto-cjk, or put a font file into /usr/local/share/fonts"

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True)
class TextRun:
    """Neighbouring characters that one font shows."""

    text: str
    font: Path | None
    """Font file; None is Pillow's built-in font, whose box for unknown characters stays visible."""


class FontSet:
    """Fonts of this machine in order of preference.

    Args:
        folders: folders to search, best first; those that do not exist are passed over.
        bundled: also use the fonts inside the matplotlib package.
    """

    def __init__(self, folders: Sequence[Path] = FONT_FOLDERS, *, bundled: bool = True) -> None:
        files = list(_font_files(folders))
        if bundled:
            files += _matplotlib_fonts()
        self.paths: tuple[Path, ...] = tuple(_in_order(files))
        self._font_of: dict[str, Path | None] = {}

    def runs(self, text: str) -> list[TextRun]:
        """Splits a text into runs of one font each; spaces and punctuation stay with the run before them."""
        if text.isascii():
            return [TextRun(text, self.default)]
        runs: list[TextRun] = []
        for char in text:
            previous = runs[-1].font if runs else self.default
            font = previous if runs and self._shows(previous, char) else self._find(char)
            if runs and font == previous:
                runs[-1] = TextRun(runs[-1].text + char, font)
            else:
                runs.append(TextRun(char, font))
        return runs

    def missing(self, text: str) -> list[str]:
        """Returns the characters that no font of this machine can show, each once."""
        if text.isascii():
            return []
        wanted = (char for char in dict.fromkeys(text) if not char.isascii() and char not in JOINERS)
        return [char for char in wanted if self._find(char) is None]

    @property
    def default(self) -> Path | None:
        """Font of ASCII texts."""
        return self.paths[0] if self.paths else None

    def _find(self, char: str) -> Path | None:
        if char not in self._font_of:
            self._font_of[char] = next((path for path in self.paths if self._shows(path, char)), None)
        return self._font_of[char]

    @staticmethod
    def _shows(path: Path | None, char: str) -> bool:
        return path is not None and ord(char) in _characters(path)


@lru_cache(maxsize=1)
def machine_fonts() -> FontSet:
    """Returns the fonts of this machine; the search runs once per process."""
    return FontSet()


@lru_cache(maxsize=64)
def open_font(path: Path | None, size: int) -> Font:
    """Opens a font file at a size in pixels; None opens the one that is part of Pillow."""
    if path is None:
        return ImageFont.load_default(size)
    return ImageFont.truetype(str(path), size)


def readable_names(names: Sequence[str], fonts: FontSet | None = None) -> list[str]:
    """Turns class names into texts that can be drawn.

    Line breaks and other control characters become spaces, long names are cut, and a name with a character that no font
    shows gets its class number in front, so that it can still be told from the others. One warning names the package
    to install.
    """
    fonts = fonts or machine_fonts()
    shown, absent = [], dict[str, None]()
    for number, name in enumerate(names):
        text = _one_line(name)
        lacking = fonts.missing(text)
        absent.update(dict.fromkeys(lacking))
        shown.append(f"{number}:{text}" if lacking else text)
    if absent:
        _warn_once(tuple(absent))
    return shown


@lru_cache(maxsize=64)
def _warn_once(absent: tuple[str, ...]) -> None:
    """Says which characters cannot be shown; names are drawn for many pictures, the warning is enough once."""
    sample = ", ".join(f"U+{ord(char):04X}" for char in absent[:5])
    LOG.warning(
        "no font shows %d characters of the class names (%s); boxes are drawn instead and the class number is added. "
        "Remedy: %s",
        len(absent),
        sample,
        MISSING_FONT_REMEDY,
    )


def _one_line(text: str) -> str:
    """Replaces what cannot be drawn by spaces, and shortens."""
    clean = "".join(" " if unicodedata.category(char) in UNDRAWABLE and char not in JOINERS else char for char in text)
    clean = " ".join(clean.split()) or "?"
    return clean if len(clean) <= LONGEST_LABEL else clean[: LONGEST_LABEL - 1] + "…"


def _font_files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        if folder.is_dir():
            yield from sorted(path for path in folder.rglob("*") if path.suffix.lower() in FONT_SUFFIXES)


def _matplotlib_fonts() -> list[Path]:
    spec = importlib.util.find_spec("matplotlib")
    if spec is None or not spec.submodule_search_locations:
        return []
    path = Path(spec.submodule_search_locations[0]) / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
    return [path] if path.is_file() else []


def _in_order(files: Iterable[Path]) -> list[Path]:
    by_name: dict[str, Path] = {}
    for path in files:
        by_name.setdefault(path.name, path)
    preferred = [by_name.pop(name) for name in PREFERRED_FILES if name in by_name]
    return preferred + list(by_name.values())[:MOST_OTHER_FONTS]


@lru_cache(maxsize=512)
def _characters(path: Path) -> frozenset[int]:
    """Code points that the first face of a font file has a picture for; empty when the file cannot be read."""
    from matplotlib.ft2font import FT2Font  # imported late: takes a tenth of a second, needed for non-ASCII names only

    try:
        return frozenset(FT2Font(str(path)).get_charmap())
    except (RuntimeError, OSError, ValueError):
        return frozenset()
