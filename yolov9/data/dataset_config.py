"""Reads a data.yaml: where the pictures of each split lie, and what the classes are called."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yolov9.config.environment import Environment, read_environment
from yolov9.config.yaml_file import YamlFileError, read_yaml
from yolov9.data.split_paths import SplitEntry, resolve_entry
from yolov9.errors import DataError
from yolov9.logs import LOG
from yolov9.read_watch import reading

SPLITS = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}
"""Splits and the keys that people use for them."""
MOST_CLASSES = 100_000
"""The largest public data set has 21,841; a network for more than this fits nowhere."""
_NOTHING = ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True)
class DatasetConfig:
    """What a data.yaml says, with every path resolved."""

    path: Path
    """The data.yaml."""
    root: Path
    """Folder that the splits are relative to."""
    names: tuple[str, ...]
    """Class names; the place is the class number."""
    splits: dict[str, tuple[Path, ...]]
    """Per split ("train", "val", "test") the folders and list files that exist."""
    key_point_columns: int = 0
    """Numbers after each box in the label files that give its key points ('kpt_shape'); they are not used."""
    tried: dict[str, tuple[Path, ...]] = field(default_factory=dict)
    """Per split that was named but not found: every path that was tried."""

    @property
    def nc(self) -> int:
        """Number of classes."""
        return len(self.names)

    def sources(self, split: str) -> tuple[Path, ...]:
        """Returns folders and list files of a split.

        Raises:
            DataError: the split is not in the file, or its folder is not there; lists every path tried.
        """
        if split in self.splits:
            return self.splits[split]
        if split in self.tried:
            paths = ", ".join(str(path) for path in self.tried[split])
            raise DataError(
                found=f"{self.path}: no such folder or list file for {split!r}; tried {paths}",
                needed=f"a folder of pictures or a text file of picture paths for {split!r}",
                remedy=f"correct {split!r} or 'path' in {self.path} (paths are relative to the folder of that file)",
            )
        there = ", ".join(sorted(self.splits)) or "none"
        raise DataError(
            found=f"{self.path}: no key {split!r} (splits found: {there})",
            needed=f"{split}: FOLDER",
            remedy=f"add a line such as '{split}: images/{split}' to {self.path}",
        )


def load_dataset_config(
    path: str, *, require: tuple[str, ...] = ("train", "val"), environment: Environment | None = None
) -> DatasetConfig:
    """Reads and checks a data.yaml.

    Args:
        path: a data.yaml, or a folder that holds one; "" is the embedded data set, generated on first use.
        require: splits that must be there.
        environment: where caches and temporary files go; read from the process when None.

    Raises:
        DataError: no such file, not YAML, names and nc disagree, or a required split is missing.
    """
    if not path:
        from yolov9.data.embedded import embedded_dataset  # only here: it is rarely needed

        path = str(embedded_dataset(environment or read_environment()))
    with reading(path):
        file = _find(path)
        content = _read(file)
    names = _read_names(content, file)
    root, root_tried = _read_root(content, file)
    splits: dict[str, tuple[Path, ...]] = {}
    tried: dict[str, tuple[Path, ...]] = {}
    for split, keys in SPLITS.items():
        value = next((content[key] for key in keys if content.get(key) not in (None, [], *_NOTHING)), None)
        if value is None:
            continue
        entries = [_resolve(str(item), root, file) for item in (value if isinstance(value, list) else [value])]
        missing = [path for entry in entries if not entry.found for path in entry.tried]
        if missing:
            tried[split] = tuple(dict.fromkeys([*root_tried, *missing]))
        else:
            splits[split] = tuple(entry.found for entry in entries if entry.found)
    config = DatasetConfig(file, root, names, splits, _read_key_point_columns(content, file), tried)
    for split in require:
        config.sources(split)
    return config


def _resolve(value: str, root: Path, file: Path) -> SplitEntry:
    entry = resolve_entry(value, root, file.parent)
    if entry.note:
        LOG.warning("%s: %s", file, entry.note)
    return entry


def _find(path: str) -> Path:
    file = Path(path).absolute()
    if file.is_dir() and (file / "data.yaml").is_file():
        return file / "data.yaml"
    if file.is_file():
        return file
    folder = file if file.is_dir() else file.parent
    others = sorted(other.name for other in folder.glob("*.yaml")) if folder.is_dir() else []
    beside = f"; {folder} has {', '.join(others[:5])}" if others else ""
    raise DataError(
        found=f"no data file {file}{beside}",
        needed="a data.yaml with train, val and names",
        remedy="--data PATH/data.yaml (in a container the path inside it, for example /data/data.yaml)",
    )


def _read(file: Path) -> dict[str, Any]:
    """Returns the mapping in a YAML file with every scalar as the text that the user typed (so 'no' stays 'no')."""
    try:
        content = read_yaml(file, all_text=True)
    except YamlFileError as error:
        raise _bad(file, str(error)) from None
    if not isinstance(content, dict):
        raise _bad(file, "not a mapping with train, val and names")
    return content


def _read_names(content: dict[str, Any], file: Path) -> tuple[str, ...]:
    given = content.get("names")
    nc = _read_nc(content, file)
    if not given and nc is None:
        raise _bad(file, "neither 'names' nor 'nc'")
    if not given:
        return tuple(f"class{number}" for number in range(nc or 0))
    if isinstance(given, dict):
        names = _names_of_mapping(given, file)
    elif isinstance(given, list):
        names = tuple(_read_name(name, number, file) for number, name in enumerate(given))
    elif set(given) & set(",[{"):
        raise _bad(file, f"names: {given!r} is one text, not a list")
    else:
        names = (str(given),)
    if nc is not None and nc != len(names):
        raise _bad(file, f"nc is {nc} but 'names' has {len(names)} entries")
    if len(set(names)) < len(names):
        LOG.warning("%s: two classes have the same name", file)
    return names


def _names_of_mapping(given: dict[Any, Any], file: Path) -> tuple[str, ...]:
    try:
        numbered = {int(key): _read_name(name, key, file) for key, name in given.items()}
    except ValueError as error:
        raise _bad(file, f"names: a key is not a class number ({error})") from None
    if max(numbered) >= MOST_CLASSES:
        raise _bad(file, f"names: class {max(numbered)} is not below {MOST_CLASSES}")
    missing = sorted(set(range(max(numbered) + 1)) - set(numbered))
    if missing or min(numbered) < 0:
        listed = ", ".join(str(number) for number in missing[:10])
        raise _bad(file, f"names: no name for class {listed}" if missing else "names: a class number below 0")
    return tuple(numbered[number] for number in range(len(numbered)))


def _read_name(name: Any, number: int | str, file: Path) -> str:
    if not isinstance(name, str):
        raise _bad(file, f"names: class {number} is called {name!r}, which is no text")
    return name


def _read_nc(content: dict[str, Any], file: Path) -> int | None:
    text = content.get("nc")
    if text is None or text in _NOTHING:
        return None
    try:
        nc = int(text)
    except (TypeError, ValueError):
        nc = 0
    if not 1 <= nc <= MOST_CLASSES:
        raise _bad(file, f"nc: {text!r} is not a number of classes")
    return nc


def _read_key_point_columns(content: dict[str, Any], file: Path) -> int:
    """Returns points times numbers of each point; 'kpt_shape: [17, 3]' is what data sets for poses say."""
    shape = content.get("kpt_shape")
    if shape is None or shape in _NOTHING:
        return 0
    try:
        points, numbers = (int(text) for text in shape if isinstance(shape, list))
    except (TypeError, ValueError):
        raise _bad(file, f"kpt_shape: {shape!r} is not [POINTS, NUMBERS OF EACH]") from None
    LOG.info("%s: key points are left out, their boxes are used", file)
    return points * numbers


def _read_root(content: dict[str, Any], file: Path) -> tuple[Path, tuple[Path, ...]]:
    """Returns the folder that 'path' names, else that of the file, and the folders that were not there."""
    value = content.get("path")
    if value is None or value in _NOTHING:
        return file.parent, ()
    entry = resolve_entry(str(value), file.parent, file.parent, folder_only=True)
    if entry.found:
        return entry.found, ()
    LOG.warning("%s: path %s is not there; the folder of the file is used instead", file, value)
    return file.parent, entry.tried


def _bad(file: Path, what: str) -> DataError:
    return DataError(
        found=f"{file}: {what}",
        needed="a YAML file such as 'path: .', 'train: images/train', 'val: images/val', 'names: [cat, dog]'",
        remedy=f"correct {file}",
    )
