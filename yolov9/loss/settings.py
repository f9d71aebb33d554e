"""Numbers that the loss and the assigner are run with."""

from dataclasses import dataclass

from yolov9.config.environment import Environment
from yolov9.config.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class LossSettings:
    """Gains and assigner settings; the defaults are those that YOLOv9's published scores were reached with."""

    cls_pw: float = 1.0
    """Weight of the positive part of the class term; more than 1 favours recall."""
    fl_gamma: float = 0.0
    """Focal exponent of the class term (Lin et al. 2017, arXiv:1708.02002); 0 is plain binary cross-entropy."""
    box: float = 7.5
    """Gain of the box term (1 - CIoU)."""
    cls: float = 0.5
    """Gain of the class term."""
    dfl: float = 1.5
    """Gain of the distribution term."""
    aux: float = 0.25
    """Share that the auxiliary head's terms count with in a dual model."""
    topk: int = 10
    """Most anchors that one target can take; a picture with fewer anchors offers all of them."""
    alpha: float = 0.5
    """Exponent of the class score in the alignment of an anchor with a target."""
    beta: float = 6.0
    """Exponent of the CIoU in the alignment."""

    def __post_init__(self) -> None:
        if self.topk < 1:
            raise ValueError(f"topk {self.topk} must be at least 1")
        for name in ("cls_pw", "fl_gamma", "box", "cls", "dfl", "aux", "alpha", "beta"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} {getattr(self, name)} must not be negative")

    @classmethod
    def from_recipe(cls, recipe: Recipe, environment: Environment | None = None) -> "LossSettings":
        """Takes `cls_pw` and `fl_gamma` from the recipe and top-k, alpha, beta from `YOLOM`, `YOLOA`, `YOLOB`.

        A recipe's `box`, `cls` and `dfl` never had an effect in YOLOv9, so they have none here.
        """
        given = {}
        if environment is not None:
            given = {
                "topk": environment.assigner_topk,
                "alpha": environment.assigner_alpha,
                "beta": environment.assigner_beta,
            }
        chosen = {name: value for name, value in given.items() if value is not None}
        return cls(cls_pw=recipe.cls_pw, fl_gamma=recipe.fl_gamma, **chosen)  # type: ignore[arg-type]  # int | float
