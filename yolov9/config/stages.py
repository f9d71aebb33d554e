"""What changes in the course of a run: picture sizes (`--stages 320:20,640:60`), batches of a step (1:4:50)."""

from dataclasses import dataclass

from yolov9.config.picture_size import STRIDE
from yolov9.errors import UserError


@dataclass(frozen=True)
class Stage:
    """A part of a run with one picture size."""

    imgsz: int
    epochs: int


def parse_stages(text: str) -> tuple[Stage, ...]:
    """Returns the stages of a run; none for "".

    Raises:
        UserError: not SIZE:EPOCHS, or sizes that are no multiples of the stride.
    """
    try:
        stages = tuple(Stage(*map(int, part.split(":"))) for part in text.split(",")) if text else ()
    except (TypeError, ValueError):
        stages = (Stage(0, 0),)
    if any(stage.imgsz < STRIDE or stage.imgsz % STRIDE or stage.epochs < 1 for stage in stages):
        raise UserError(
            found=f"--stages {text}",
            needed=f"SIZE:EPOCHS,SIZE:EPOCHS…, sizes that are multiples of {STRIDE}, at least one epoch each",
            remedy="--stages 320:20,640:60",
        )
    return stages


def size_at(stages: tuple[Stage, ...], epoch: int) -> int:
    """Returns the picture size of an epoch, counted from 0; epochs beyond the last stage belong to it."""
    first = 0
    for stage in stages:
        first += stage.epochs
        if epoch < first:
            return stage.imgsz
    return stages[-1].imgsz


@dataclass(frozen=True)
class Growth:
    """Loaded batches of an optimizer step, from `start` in the first epoch to `end` in the last one of `epochs`."""

    start: int
    end: int
    epochs: int

    def at(self, epoch: int) -> float:
        """Returns the batches of a step in an epoch, counted from 0; not rounded."""
        share = min(1.0, epoch / max(1, self.epochs - 1))
        return self.start + (self.end - self.start) * share


def parse_growth(text: str, epochs: int) -> Growth | None:
    """Returns the growth that START:END or START:END:EPOCHS means; None for "".

    Args:
        text: value of the option.
        epochs: of the run; the growth takes all of them unless it names fewer.

    Raises:
        UserError: something else.
    """
    if not text:
        return None
    try:
        start, end, *rest = map(int, text.split(":"))
        growth = Growth(start, end, *(rest or [epochs]))
    except (TypeError, ValueError):
        growth = Growth(0, 0, 0)
    if min(growth.start, growth.end, growth.epochs) < 1:
        raise UserError(
            found=f"--dynamic-accumulate {text}",
            needed="START:END or START:END:EPOCHS, whole numbers from 1 up",
            remedy="--dynamic-accumulate 1:4",
        )
    return growth
