"""Reads YAML files that anybody may have written: bounded in size, depth and what aliases expand to."""

import stat
from pathlib import Path
from typing import Any

import yaml

from yolov9.decode_text import decode_text
from yolov9.errors import first_line

MAX_BYTES = 16 << 20
"""A data.yaml that names all 21,000 classes of the largest public data set has half a megabyte."""
MAX_VALUES = 1_000_000
"""Values in a file once every alias is followed; a page of nested aliases can stand for billions."""
LONGEST_REASON = 200
"""Characters of a message that repeats what stands in the file."""


class YamlFileError(Exception):
    """A file that cannot be read as YAML; the text says why, in one line."""


def read_yaml(path: Path, *, all_text: bool = False) -> Any:
    """Returns the value in a YAML file; nothing from it is executed.

    Args:
        path: the file, in UTF-8 or in UTF-16 with its mark.
        all_text: every scalar is the text that was typed (so `no` stays "no").

    Raises:
        YamlFileError: not a file, not readable, not YAML, or larger than anything that is meant.
    """
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise YamlFileError("not a file")
        if facts.st_size > MAX_BYTES:
            raise YamlFileError(f"it has {facts.st_size} bytes, more than {MAX_BYTES}")
        text = decode_text(path.read_bytes())
        content = _load(text, yaml.BaseLoader if all_text else yaml.SafeLoader)
        if _values_in(content, {}, set()) > MAX_VALUES:
            raise YamlFileError(f"its aliases stand for more than {MAX_VALUES} values")
    except UnicodeDecodeError as error:
        raise YamlFileError(f"not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise YamlFileError(error.strerror or "cannot be read") from None
    except yaml.MarkedYAMLError as error:
        raise YamlFileError(_where(error)) from None
    except yaml.YAMLError as error:
        raise YamlFileError(first_line(error)) from None
    except RecursionError:
        raise YamlFileError("nested too deeply, or an alias of itself") from None
    except (ValueError, TypeError, OverflowError) as error:  # such as the 99th of a month, or a list as a key
        raise YamlFileError(first_line(error)[:LONGEST_REASON]) from None
    return content


def _load(text: str, kind: type[yaml.BaseLoader] | type[yaml.SafeLoader]) -> Any:
    loader = kind(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_second_keys(node, set())
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _refuse_second_keys(node: yaml.Node, known: set[int]) -> None:
    """Refuses a key that stands twice in a mapping: which of the values is meant is not for this program to guess."""
    if not isinstance(node, yaml.CollectionNode) or id(node) in known:
        return
    known.add(id(node))
    if not isinstance(node, yaml.MappingNode):
        for item in node.value:
            _refuse_second_keys(item, known)
        return
    keys: set[str] = set()
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in keys:
                raise yaml.MarkedYAMLError(
                    problem=f"{key.value!r} stands there a second time", problem_mark=key.start_mark
                )
            keys.add(key.value)
        _refuse_second_keys(value, known)


def _values_in(value: Any, known: dict[int, int], open_ones: set[int]) -> int:
    """Counts values with each alias followed; every container is looked at once."""
    if not isinstance(value, (dict, list, set, tuple)):
        return 1
    if id(value) in open_ones:
        raise RecursionError
    if id(value) not in known:
        open_ones.add(id(value))
        parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_values_in(part, known, open_ones) for part in parts)
        open_ones.discard(id(value))
    return known[id(value)]


def _where(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    line = f"line {mark.line + 1}: " if mark else ""
    hint = ""
    if "\\t" in str(error.problem):
        hint = " (a tab; YAML is indented with spaces)"
    elif "escape" in str(error.problem):
        hint = " (a backslash in double quotes; single quotes keep it as it is)"
    return f"{line}{error.problem}{hint}"
