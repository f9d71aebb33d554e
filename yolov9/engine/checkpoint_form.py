"""What a checkpoint holds, by name and type: a file that was changed by hand is refused before anything is built."""

import types
import typing
from typing import Any

from torch import Tensor

from yolov9.config.settings import TrainSettings

TENSORS: dict[Any, Any] = {str: Tensor}
FORM: dict[str, Any] = {
    "graph": dict,
    "graph_name": str,
    "names": [str],
    "model": TENSORS,
    "ema": TENSORS,
    "training": {
        "optimizer": {"kind": str, "state": {str: TENSORS}},
        "gradients": TENSORS,
        "scaler": dict,
        "ema_updates": int,
        "batches_per_epoch": int,
        "batch": int,
        "world": int,
        "pictures_per_step": int,
        "rng": TENSORS,
        "settings": {"epochs": int, "patience": int},
        "recipe": {str: (int, float)},
        "progress": {
            "epoch": int,
            "batch": int,
            "last_step": int,
            "optimizer_steps": int,
            "best_score": (int, float),
            "best_epoch": int,
            "loss_sums": [(int, float)],
            "rows": [[str]],
            "finished": bool,
        },
    },
}
"""A type, a list of one form, a mapping of names to forms, or {str: form} for a mapping with any names."""


def misfit(content: dict[str, Any]) -> str | None:
    """Returns what of a training checkpoint does not have its form, in words; None when everything fits.

    More than is needed does no harm. Settings that are not there are those of an older version, and have defaults.
    """
    problem = _misfit(content, FORM, "it")
    if problem is not None:
        return problem
    saved = content["training"]["settings"]
    for name, kind in typing.get_type_hints(TrainSettings).items():
        if name in saved and not isinstance(saved[name], _classes(kind)):
            return f"its setting {name} is a {type(saved[name]).__name__}"
    return None


def _classes(kind: Any) -> tuple[type, ...]:
    """Classes that values of an annotated type have; whole numbers are numbers as well."""
    parts = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    classes = tuple(typing.get_origin(part) or part for part in parts)
    return (*classes, int) if float in classes else classes


def _misfit(content: Any, form: Any, where: str) -> str | None:
    if isinstance(form, list):
        if not isinstance(content, list):
            return f"{where} is not a list"
        parts = ((f"{where}[{number}]", part, form[0]) for number, part in enumerate(content))
    elif isinstance(form, dict):
        if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
            return f"{where} is not a mapping of names"
        missing = [name for name in form if name is not str and name not in content]
        if missing:
            return f"{where} has no {missing[0]}"
        of_each = form.get(str)
        parts = ((f"{where}.{name}", content[name], of_each or form[name]) for name in (content if of_each else form))
    else:
        return None if isinstance(content, form) else f"{where} is a {type(content).__name__}"
    return next((problem for part in parts if (problem := _misfit(part[1], part[2], part[0]))), None)
