"""Training recipe: the hyper-parameters of optimisation and augmentation that people keep in `hyp.*.yaml` files."""

import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from yolov9.config.yaml_file import YamlFileError, read_yaml
from yolov9.errors import UserError

RECIPES_DIR = Path(__file__).parent / "recipes"
WITHOUT_EFFECT = ("box", "cls", "dfl", "obj", "obj_pw", "iou_t", "anchor_t", "label_smoothing")
"""Names that recipe files hold and that change nothing in a YOLOv9 loss (fixed gains, no anchors, no objectness)."""

_RANGES = {
    **dict.fromkeys(("flipud", "fliplr", "mosaic", "mixup", "copy_paste"), (0.0, 1.0)),
    **dict.fromkeys(("momentum", "warmup_momentum"), (0.0, 0.9999)),
    **dict.fromkeys(("lr0", "lrf"), (1e-12, math.inf)),
    "scale": (0.0, 0.999),
    "perspective": (0.0, 0.001),
}
"""Lowest and highest value by name; all others are from 0 up."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Values of the published `scratch-high` recipe unless a file says otherwise."""

    lr0: float = 0.01
    """Learning rate at the start."""
    lrf: float = 0.01
    """Learning rate at the end, as a share of `lr0`."""
    momentum: float = 0.937
    """SGD momentum, or Adam's first beta."""
    weight_decay: float = 0.0005
    """Decay of convolution weights at the nominal batch of 64; scaled with the optimisation batch."""
    warmup_epochs: float = 3.0
    """Length of the warm-up in epochs; at least 100 iterations."""
    warmup_momentum: float = 0.8
    """Momentum at the first iteration."""
    warmup_bias_lr: float = 0.1
    """Learning rate of biases at the first iteration."""
    cls_pw: float = 1.0
    """Weight of positive class targets in the class loss."""
    fl_gamma: float = 0.0
    """Focal-loss gamma of the class loss; 0 is plain binary cross-entropy."""
    hsv_h: float = 0.015
    """Largest relative change of hue."""
    hsv_s: float = 0.7
    """Largest relative change of saturation."""
    hsv_v: float = 0.4
    """Largest relative change of brightness."""
    degrees: float = 0.0
    """Largest rotation in degrees."""
    translate: float = 0.1
    """Largest shift, as a share of the picture size."""
    scale: float = 0.9
    """Scale is drawn from 1 - scale to 1 + scale."""
    shear: float = 0.0
    """Largest shear in degrees."""
    perspective: float = 0.0
    """Largest perspective coefficient, 0 to 0.001."""
    flipud: float = 0.0
    """Probability of an upside-down flip."""
    fliplr: float = 0.5
    """Probability of a left-right flip."""
    mosaic: float = 1.0
    """Probability that a sample is a mosaic of four pictures."""
    mixup: float = 0.15
    """Probability that a mosaic is blended with a second one."""
    copy_paste: float = 0.3
    """Share of polygon objects that are copied and mirrored onto the picture."""

    def __post_init__(self) -> None:
        for name, value in self.as_dict().items():
            _check_range(name, value, "values")

    def as_dict(self) -> dict[str, float]:
        """Returns the recipe as plain numbers, as stored in checkpoints and in `hyp.yaml` of a run."""
        return asdict(self)


def load_recipe(name_or_path: str) -> Recipe:
    """Returns a recipe by name or from a file.

    Args:
        name_or_path: `scratch-high`, `hyp.scratch-high.yaml`, `data/hyps/hyp.scratch-high.yaml` (all the same) or the
            path of a YAML file with some or all of the fields of `Recipe`.

    Raises:
        UserError: no such file or name, not a mapping of numbers, or a name that does not exist.
    """
    path = _find(name_or_path)
    try:
        content = read_yaml(path)
    except YamlFileError as error:
        raise _bad(path, f"not readable as YAML ({error})") from None
    if not isinstance(content, dict):
        raise _bad(path, "not a mapping of names to numbers")
    return recipe_from_dict(content, path)


def recipe_from_dict(content: dict[Any, Any], source: Path | str) -> Recipe:
    """Checks names and numbers of a mapping and returns the recipe; names without effect are left out.

    Raises:
        UserError: a name that does not exist, or a value that is no number or out of its range.
    """
    known = {field.name for field in fields(Recipe)}
    values: dict[str, float] = {}
    for name, value in content.items():
        if name in WITHOUT_EFFECT:
            continue
        if name not in known:
            raise _bad(source, f"unknown name {name!r}; known names are {', '.join(sorted(known))}")
        values[name] = _number(name, value, source)
        _check_range(name, values[name], source)
    return Recipe(**values)


def recipe_names() -> list[str]:
    """Returns the names of the recipes that come with the program."""
    return sorted(path.stem for path in RECIPES_DIR.glob("*.yaml"))


def _find(name_or_path: str) -> Path:
    path = Path(name_or_path)
    if path.is_file():
        return path
    stem = path.name.removesuffix(".yaml").removesuffix(".yml").removeprefix("hyp.")
    built_in = RECIPES_DIR / f"{stem}.yaml"
    if stem in recipe_names():
        return built_in
    raise UserError(
        found=f"--hyp {name_or_path}: no such file and no recipe of that name",
        needed=f"a YAML file or one of: {', '.join(recipe_names())}",
        remedy="--hyp scratch-high",
    )


def _bad(source: Path | str, what: str) -> UserError:
    return UserError(
        found=f"recipe {source}: {what}",
        needed="a YAML mapping of hyper-parameter names to numbers",
        remedy=f"correct {source}, or leave --hyp out to use scratch-high",
    )


def _check_range(name: str, value: float, source: Path | str) -> None:
    low, high = _RANGES.get(name, (0.0, math.inf))
    if not (low <= value <= high and math.isfinite(value)):
        raise _bad(source, f"{name} = {value} is outside {low} … {high}")


def _number(name: str, value: Any, source: Path | str) -> float:
    """YAML takes `1e-2`, without a point, for text; here it is the number that was meant."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        raise _bad(source, f"{name}: {value!r} is not a number")
    return number
