"""What the user asks for: defaults < resumed run < YAML < environment < command line, each value with its source."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from entrypoint.options import Option, Parser, build_parser, convert, nearest, options_of, parse
from entrypoint.staging.facts import StageSurvey
from yolov9.config.environment import SETTING_PREFIX, Environment, read_environment, read_setting_variables
from yolov9.config.settings import (
    FLAGS_WITHOUT_EFFECT,
    DetectSettings,
    RunSettings,
    TrainSettings,
    ValSettings,
    option,
)
from yolov9.config.yaml_file import YamlFileError, read_yaml
from yolov9.engine.plan_record import RESUMED
from yolov9.errors import UserError

SETTINGS: dict[str, type[RunSettings]] = {"train": TrainSettings, "val": ValSettings, "detect": DetectSettings}
DESCRIPTIONS = {
    "train": "Trains a model. Every value that is not given is chosen from the machine's limits, and said.",
    "val": "Measures precision, recall and mAP of a checkpoint on a data set.",
    "detect": "Finds objects in pictures, videos and streams.",
}


@dataclass(kw_only=True)
class JobOptions:
    """Options of the job around the model."""

    config: str = option("", "--config", help="YAML file with options by name; the command line wins over it")
    strict: bool = option(False, "--strict", help="stop where the plan would have to take less than was asked")
    jobs: int = option(1, "--jobs", help="jobs like this one that run side by side here; CPUs and memory are divided")


@dataclass(kw_only=True)
class ReportOptions:
    """Options of `plan` and `check`."""

    json: bool = option(False, "--json", help="print the same as data")
    root: str = option("/", "--root", help="read the machine from this folder instead of /")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a value came from."""

    value: Any
    source: str


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """A typed request; the plan adds what is not in it."""

    command: str
    settings: TrainSettings | ValSettings | DetectSettings
    job: JobOptions = field(default_factory=JobOptions)
    report: ReportOptions = field(default_factory=ReportOptions)
    given: Mapping[str, Source] = field(default_factory=dict)
    """Options that somebody gave, by name; all others have their default."""
    environment: Environment = field(default_factory=Environment)
    notes: tuple[str, ...] = ()
    """Lines for the log: flags without effect, spellings, contradictions that were settled."""
    model: str = ""
    """Name of graph or checkpoint, as far as it can be known without opening it."""
    model_source: str = "default"
    pictures: int | None = None
    """Pictures of all splits in use; None when they were not counted."""
    training_pictures: int | None = None
    """Those that are trained on."""
    cache_of_run: str = ""
    """What `--cache` was planned to be when the run was started that goes on; "" when none does."""
    passes_of_run: int | None = None
    """Pictures that a run that goes on loads at a time on all ranks, where `--dynamic-accumulate` counts in them."""
    staging: StageSurvey | None = None
    """What was measured for a copy of the data set; None when nothing asked for it."""

    def source(self, name: str) -> str:
        """Returns where an option's value came from."""
        return self.given[name].source if name in self.given else "default"

    def was_given(self, name: str) -> bool:
        """Says whether somebody gave this option."""
        return name in self.given

    def is_of_former_start(self, name: str) -> bool:
        """Says whether an option was given when the run was first started, and not now."""
        return self.source(name).startswith(RESUMED)

    def as_dict(self) -> dict[str, Any]:
        """Returns what was given, as stored with a run."""
        return {name: {"value": entry.value, "source": entry.source} for name, entry in self.given.items()}


def command_parser(command: str, *, report: bool = False) -> Parser:
    """Returns the parser of `train`, `val` or `detect`; with `report` also the options of `plan`."""
    groups: dict[str, Sequence[type]] = {"the model and its data": [SETTINGS[command]], "the job": [JobOptions]}
    if report:
        groups["the report"] = [ReportOptions]
    prog = f"plan {command}" if report else command
    described = f"Shows what {command} would do here, and why, without doing it. `plan` alone is `plan train`."
    return build_parser(prog, described if report else DESCRIPTIONS[command], groups, with_idle=True)


def make_request(
    command: str,
    argv: Sequence[str],
    *,
    report: bool = False,
    variables: Mapping[str, str] | None = None,
    resumed: Mapping[str, Source] | None = None,
) -> JobRequest:
    """Merges all sources of options.

    Args:
        command: train, val or detect.
        argv: words after the command.
        report: accept the options of `plan` too.
        variables: environment; default: this process's.
        resumed: options of the run that goes on.

    Raises:
        UserError: unknown option, wrong type, unreadable YAML, variable that is not a number.
    """
    known = options_of([SETTINGS[command], JobOptions, ReportOptions])
    typed_in, idle = parse(command_parser(command, report=report), argv)
    notes = [f"{flag}: accepted, {FLAGS_WITHOUT_EFFECT[flag]}" for flag in idle]
    given: dict[str, Source] = {}
    from_env, env_notes = _from_variables(known, variables)
    config = typed_in.get("config") or from_env.get("config", ("", ""))[0]
    layers = [_from_yaml(config, known)] if config else []
    layers.insert(0, {name: (kept.value, kept.source) for name, kept in (resumed or {}).items() if name in known})
    layers += [from_env, {name: (raw, _flag(known[name], raw)) for name, raw in typed_in.items()}]
    for layer in layers:
        for name, (raw, source) in layer.items():
            given[name] = Source(value=convert(known[name], raw, source), source=source)
    return JobRequest(
        command=command,
        settings=_fill(SETTINGS[command], given),
        job=_fill(JobOptions, given),
        report=_fill(ReportOptions, given),
        given=given,
        environment=_environment(variables),
        notes=(*notes, *env_notes),
    )


def _fill(cls: type[Any], given: Mapping[str, Source]) -> Any:
    names = options_of([cls])
    return cls(**{name: entry.value for name, entry in given.items() if name in names})


def _flag(option: Option, raw: Any) -> str:
    flag = option.flags[0]
    if raw is True:
        return flag
    return f"{flag} {shlex.join(map(str, raw)) if isinstance(raw, list) else shlex.quote(str(raw))}"


def _from_variables(
    known: Mapping[str, Option], variables: Mapping[str, str] | None
) -> tuple[dict[str, tuple[Any, str]], list[str]]:
    """`YOLOV9_EPOCHS=3` and the like. One environment serves all commands, so options of others are passed over."""
    everywhere = options_of([*SETTINGS.values(), JobOptions, ReportOptions])
    spelled = _spellings(everywhere)
    values: dict[str, tuple[Any, str]] = {}
    notes: list[str] = []
    for word, raw in read_setting_variables(variables).items():
        variable = f"{SETTING_PREFIX}{word.upper()}"
        name = spelled.get(word)
        if name is None:
            near = nearest(word, spelled)
            hint = f"; did you mean {SETTING_PREFIX}{near.upper()}?" if near else ""
            notes.append(f"environment variable {variable} is not an option and was ignored{hint}")
        elif name in known:
            values[name] = (raw, f"{variable}={raw}")
    return values, notes


def _from_yaml(file: str, known: Mapping[str, Option]) -> dict[str, tuple[Any, str]]:
    try:
        content = read_yaml(Path(file))
    except YamlFileError as error:
        raise _bad_yaml(file, str(error)) from None
    if not isinstance(content, dict):
        raise _bad_yaml(file, "not a mapping of names to values")
    spelled = _spellings(known)
    values: dict[str, tuple[Any, str]] = {}
    for word, raw in content.items():
        name = spelled.get(str(word).replace("-", "_"))
        if name is None:
            near = nearest(str(word), spelled)
            raise _bad_yaml(file, f"unknown name {word!r}" + (f"; the nearest is {near}" if near else ""))
        if name == "config":
            raise _bad_yaml(file, f"{word!r} inside of it would not be read")
        values[name] = (raw, f"{file} {word}")
    return values


def _spellings(known: Mapping[str, Option]) -> dict[str, str]:
    """Field names and flag spellings in lower case with underscores -> field name."""
    spelled = {name: name for name in known}
    for name, entry in known.items():
        for flag in entry.flags:
            spelled.setdefault(flag.lstrip("-").replace("-", "_").lower(), name)
    return spelled


def _bad_yaml(file: str, what: str) -> UserError:
    return UserError(
        found=f"--config {file}: {what}",
        needed="a YAML mapping of option names to values",
        remedy=f"correct {file}, or leave --config out",
    )


def _environment(variables: Mapping[str, str] | None) -> Environment:
    try:
        return read_environment(variables)
    except ValueError as error:
        raise UserError(found=str(error), needed="a number", remedy="unset the variable") from None
