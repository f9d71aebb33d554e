"""When a training counts as diverged, and what is said then."""

from yolov9.errors import ExitCode, UserError

MAX_BAD_UPDATES_IN_A_ROW = 30
"""Updates with a gradient that is not finite; an fp16 scaler finds its scale in about 16."""


def diverged(found: str) -> UserError:
    """Returns the error that ends a training whose numbers are no longer finite.

    Args:
        found: which numbers.
    """
    return UserError(
        found=found,
        needed="finite numbers; a high learning rate is the usual cause, or half precision, which is then left",
        remedy="a new run with a lower lr0: --hyp RECIPE.yaml",
        exit_code=ExitCode.DIVERGED,
    )
