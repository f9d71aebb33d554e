"""Finds the weights file that a user means."""

from pathlib import Path

from yolov9.config.environment import Environment, read_environment
from yolov9.errors import UserError
from yolov9.logs import LOG
from yolov9.read_watch import reading

NEWEST_UNDER = Path("runs/train")
"""Where training puts its runs when nothing else is said."""


def newest_run(project: Path) -> Path | None:
    """Returns the last.pt of the run under a folder that was saved last, or None.

    Where only the generation before is left, because a crash came in between, last.pt itself is not there.
    """
    generations = [*project.glob("*/weights/last.pt"), *project.glob("*/weights/last-previous.pt")]
    if not generations:
        return None
    return max(generations, key=lambda path: path.stat().st_mtime).with_name("last.pt")


def find_weights(text: str, environment: Environment | None = None) -> Path:
    """Returns the path of a weights file.

    Args:
        text: a path; a bare name is looked for in the working folder, then in `YOLOV9_WEIGHTS_DIR`; "" is the newest
            best.pt under runs/train.
        environment: None reads the process's.

    Raises:
        UserError: there is no such file; lists the places that were tried.
    """
    if not text:
        return _newest()
    tried = [Path(text)]
    folder = (environment or read_environment()).weights_dir
    if folder is not None and len(tried[0].parts) == 1:
        tried.append(folder / text)
    for path in tried:
        with reading(path):
            if path.is_file():
                return path
    places = ", ".join(str(path.absolute()) for path in tried)
    raise UserError(f"no weights at {places}", "a .pt file of YOLOv9", _remedy(folder))


def _newest() -> Path:
    found = [path for path in NEWEST_UNDER.glob("*/weights/best.pt") if path.is_file()]
    if not found:
        raise UserError(
            f"no --weights, and no best.pt under {NEWEST_UNDER.absolute()}",
            "weights to use",
            "--weights FILE.pt (train writes runs/train/NAME/weights/best.pt)",
        )
    newest = max(found, key=lambda path: path.stat().st_mtime_ns)
    LOG.info("weights: %s, the newest best.pt", newest)
    return newest


def _remedy(folder: Path | None) -> str:
    known = sorted(path.name for path in folder.glob("*.pt")) if folder is not None and folder.is_dir() else []
    return f"--weights {' or '.join(known[:5])}" if known else "--weights PATH/best.pt"
