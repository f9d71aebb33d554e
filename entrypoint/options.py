"""Turns settings classes into a command line, and text from any source into typed values."""

import argparse
import difflib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, NoReturn

from yolov9.config.environment import SETTING_PREFIX
from yolov9.config.settings import FLAGS_WITHOUT_EFFECT
from yolov9.errors import UserError
from yolov9.logs import show_text

TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"0", "false", "no", "off", ""})
HELP_WIDTH = 110
"""Columns of the help; the same in every terminal and log."""
SEVERAL_VALUES = frozenset({"imgsz", "weights"})
"""Options that take one value here and may get more in commands for YOLOv9's own scripts."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option, as the field of a settings class declares it with `yolov9.config.settings.option`."""

    name: str
    """Of the field."""
    kind: Any
    """Annotated type of the field, such as `int | None`."""
    default: Any
    flags: tuple[str, ...]
    """Spellings on the command line, the usual one first."""
    help: str
    argparse_options: Mapping[str, Any]
    """`choices`, `nargs`, `const` and `metavar` as in argparse, where they are given."""

    @property
    def base(self) -> Any:
        """Type of its values without None and type arguments: int of `int | None`, list of `list[int]`."""
        kind = self.kind
        if isinstance(kind, types.UnionType):
            kind = next(part for part in typing.get_args(kind) if part is not type(None))
        return typing.get_origin(kind) or kind

    @property
    def example(self) -> str:
        """A value that it may have: its default, or a small one."""
        if isinstance(self.default, list):
            return " ".join(map(str, self.default))
        small = {int: "1", float: "0.5", list: "0"}
        return str(self.default) if self.default not in (None, "", False) else small.get(self.base, "VALUE")


class Parser(argparse.ArgumentParser):
    """Argument parser whose errors say what was found, what is needed and what to type."""

    idle: dict[str, str]
    """Destination -> flag of options that are accepted and have nothing to do."""

    def error(self, message: str) -> NoReturn:
        """Raises UserError instead of ending the process."""
        raise UserError(
            found=f"{self.prog}: {message}",
            needed="options as the help lists them",
            remedy=f"{self.prog} --help",
        )

    def print_help(self, file: Any = None) -> None:
        """Prints the help; argparse itself would not say that it cannot be written."""
        show_text(self.format_help().rstrip("\n"))


def options_of(classes: Sequence[type]) -> dict[str, Option]:
    """Returns the options of some settings classes by name."""
    found: dict[str, Option] = {}
    for cls in classes:
        hints = typing.get_type_hints(cls)
        for field in fields(cls):
            if "flags" in field.metadata:
                default = field.default if field.default is not MISSING else typing.cast(Any, field.default_factory)()
                found[field.name] = Option(
                    name=field.name, kind=hints[field.name], default=default, **dict(field.metadata)
                )
    return found


def build_parser(
    prog: str, description: str, groups: Mapping[str, Sequence[type]], *, with_idle: bool = False
) -> Parser:
    """Returns a parser that collects text only; `convert` makes values of it.

    Args:
        prog: how the command is called, for the help.
        description: what it does.
        groups: heading -> settings classes under it.
        with_idle: also take flags that have nothing to do here.
    """
    parser = Parser(
        prog=prog,
        usage=f"{prog} [options]",
        description=description,
        formatter_class=_help_format,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    taken: set[str] = set()
    for heading, classes in groups.items():
        group = parser.add_argument_group(heading)
        for name, option in options_of(classes).items():
            if name not in taken:
                taken.add(name)
                _add(group, option)
    idle = [flag for flag in FLAGS_WITHOUT_EFFECT if with_idle and flag not in parser._option_string_actions]
    parser.idle = {f"no effect {flag}": flag for flag in idle}
    for name, flag in parser.idle.items():
        parser.add_argument(flag, dest=name, nargs="?", const="", help=argparse.SUPPRESS)
    if with_idle:
        parser.epilog = f"Accepted from commands for YOLOv9's own scripts, with nothing to do: {', '.join(idle)}."
    return parser


def _help_format(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=34, width=HELP_WIDTH)


def parse(parser: Parser, argv: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Returns the text given for each option, and the flags without effect that were given.

    Raises:
        UserError: an unknown flag, with the nearest known one, or a missing value.
    """
    values, unknown = parse_known(parser, argv)
    if unknown:
        raise _unknown(parser.prog, unknown[0], sorted(parser._option_string_actions))
    idle = [parser.idle[name] for name in values if name in parser.idle]
    return {name: value for name, value in values.items() if name not in parser.idle}, idle


def parse_known(parser: Parser, argv: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Returns the text given for each option that the parser knows, and all other words in their order.

    Raises:
        UserError: a missing value.
    """
    known = sorted(parser._option_string_actions)
    given, others = parser.parse_known_args([_respell(word, known) for word in argv])
    return vars(given), others


def convert(option: Option, raw: Any, source: str) -> Any:
    """Returns the typed value of an option.

    Args:
        option: what is to be converted to.
        raw: text, or a value from YAML.
        source: where it was given, for messages.

    Raises:
        UserError: it is not of that type or not one of the choices.
    """
    try:
        value = _typed(option, raw)
    except (TypeError, ValueError):
        raise UserError(
            found=f"{source}: {raw!r}",
            needed=_describe(option),
            remedy=_spelled(source, option, option.example),
        ) from None
    choices = option.argparse_options.get("choices")
    if choices and value not in choices:
        raise UserError(
            found=f"{source}: {raw!r}",
            needed=f"one of: {', '.join(choices)}",
            remedy=_spelled(source, option, choices[0]),
        )
    return value


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Returns the known word that looks most like this one, or None."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def _add(group: argparse._ArgumentGroup, option: Option) -> None:
    extra, default = dict(option.argparse_options), option.default
    text = option.help.replace("%", "%%")
    if default not in (None, "", False, []):
        shown = " ".join(map(str, default)) if isinstance(default, list) else default
        text = f"{text} (default: {shown})"
    if option.kind is bool:
        group.add_argument(*option.flags, dest=option.name, action="store_true", help=text)
        return
    if option.name in SEVERAL_VALUES and "nargs" not in extra:
        extra["nargs"] = "+"
    choices = extra.pop("choices", None)
    extra.setdefault("metavar", f"{{{','.join(choices)}}}" if choices else _metavar(option))
    group.add_argument(*option.flags, dest=option.name, help=text, **extra)


def _respell(word: str, known: Sequence[str]) -> str:
    """`--close_mosaic=3` becomes `--close-mosaic=3` when only the second is known."""
    flag, equals, value = word.partition("=")
    dashed = flag.replace("_", "-")
    return f"{dashed}{equals}{value}" if flag.startswith("--") and flag not in known and dashed in known else word


def _unknown(prog: str, word: str, known: Sequence[str]) -> UserError:
    flag = word.partition("=")[0]
    if not flag.startswith("-"):
        return UserError(
            found=f"{prog}: {word!r} stands alone",
            needed="a flag before each value, and quotes around patterns, which the shell replaces by several names",
            remedy="--source 'FOLDER/*.jpg'" if prog == "detect" else f"{prog} --help",
        )
    # Compared without the dashes, in which all options are alike.
    bare = {option.lstrip("-"): option for option in known}
    near = bare.get(nearest(flag.lstrip("-"), bare) or "")
    return UserError(
        found=f"{prog}: unknown option {flag}",
        needed=f"a known option; the nearest is {near}" if near else "a known option",
        remedy=f"{near} …" if near else f"{prog} --help",
    )


def _typed(option: Option, raw: Any) -> Any:
    if option.kind is bool:
        return _boolean(raw)
    if isinstance(raw, bool) and "const" in option.argparse_options:
        return option.argparse_options["const"] if raw else option.default
    if isinstance(raw, bool):
        raise TypeError(raw)
    if isinstance(raw, list) and option.name in SEVERAL_VALUES:
        raw = _single(option.name, raw)
    if option.base is list:
        words = raw if isinstance(raw, list) else str(raw).replace(",", " ").split()
        return [int(str(word)) for word in words]
    if raw is None:
        return option.default
    if isinstance(raw, (list, dict)):
        raise TypeError(raw)
    return option.base(raw if option.base is float else str(raw))


def _single(name: str, values: list[Any]) -> Any:
    """One value of several: the larger side of a picture size; never one checkpoint of several."""
    if name == "imgsz":
        return max(int(str(value)) for value in values)
    if len(values) != 1:
        raise ValueError(values)
    return values[0]


def _boolean(raw: Any) -> bool:
    word = str(raw).strip().lower()
    if word not in TRUE_WORDS | FALSE_WORDS:
        raise ValueError(raw)
    return word in TRUE_WORDS


def _metavar(option: Option) -> str:
    return {int: "N", float: "X", list: "N"}.get(option.base, "TEXT")


def _describe(option: Option) -> str:
    words = {int: "one whole number", float: "a number", bool: "true or false", list: "whole numbers"}
    return words.get(option.base, "one value")


def _spelled(source: str, option: Option, value: str) -> str:
    """Returns what to type where the option was given: a variable stays one."""
    variable = source.partition("=")[0]
    return f"{variable}={value}" if source.startswith(SETTING_PREFIX) else f"{option.flags[0]} {value}"
