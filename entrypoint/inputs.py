"""Files a job names: found or refused before anything starts, without loading PyTorch."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from entrypoint.options import nearest
from entrypoint.request import JobRequest
from yolov9.config.recipe import load_recipe
from yolov9.config.settings import DetectSettings, TrainSettings
from yolov9.errors import DataError, UserError

GRAPHS_DIR = Path(__file__).parents[1] / "yolov9" / "config" / "graphs"
NARROW_SUFFIX = re.compile(r"-cls\d+$")
"""`yolov9-t-cls80`: the graph `yolov9-t` with a given width of the class branch."""
DEFAULT_MODEL = "yolov9-s"
CHECKPOINT_SUFFIXES = (".pt", ".pth")


def graph_names() -> list[str]:
    """Returns the names of the model graphs that come with the program."""
    return sorted(path.stem for path in GRAPHS_DIR.glob("*.yaml"))


def resolve_inputs(request: JobRequest) -> JobRequest:
    """Returns the request with the paths that will be used, the model's name and the number of pictures.

    Raises:
        UserError: weights, model, recipe or source cannot be found.
        DataError: the data set file cannot be found.
    """
    settings = request.settings
    if getattr(settings, "data", ""):
        _check_data(settings.data)
    weights = settings.weights
    if weights:
        weights = str(find_weights(weights, request.environment.weights_dir))
    elif not isinstance(settings, TrainSettings):
        weights = str(newest_checkpoint(Path("runs/train"), "best.pt", request))
    model, source = _model(request, weights)
    changed = replace(settings, weights=weights)
    if isinstance(settings, TrainSettings):
        load_recipe(settings.hyp)
        if not settings.cfg and not weights:
            changed = replace(settings, weights=weights, cfg=model)
    if isinstance(settings, DetectSettings):
        _check_source(settings.source)
    return replace(request, settings=changed, model=model, model_source=source)


def find_weights(name: str, weights_dir: Path | None) -> Path:
    """Returns a checkpoint by path, or by name in the working folder and then among the image's weights.

    Raises:
        UserError: it is in neither, or is a folder.
    """
    given = Path(name).expanduser()
    tried = [given] if given.suffix in CHECKPOINT_SUFFIXES else [given, given.with_name(f"{given.name}.pt")]
    if weights_dir is not None and given.parent == Path():
        tried += [weights_dir / path.name for path in tried]
    for path in tried:
        if path.is_file():
            return path
    if given.is_dir():
        raise UserError(
            found=f"--weights {name}: a folder", needed="a checkpoint file", remedy=f"--weights {given / 'best.pt'}"
        )
    present = sorted({path.name for path in _checkpoints([Path(), weights_dir])})
    raise UserError(
        found=f"--weights {name}: no such file; looked for {', '.join(str(path.absolute()) for path in tried)}",
        needed="a checkpoint file" + (f"; these are here: {', '.join(present)}" if present else ""),
        remedy=f"--weights {nearest(given.name, present) or (present[0] if present else 'PATH/TO/best.pt')}",
    )


def newest_checkpoint(project: Path, name: str, request: JobRequest) -> Path:
    """Returns the checkpoint of that name that was written last under a folder of runs.

    Raises:
        UserError: there is none.
    """
    found = sorted(project.glob(f"*/weights/{name}"), key=lambda path: path.stat().st_mtime)
    if found:
        return found[-1]
    present = sorted({path.name for path in _checkpoints([Path(), request.environment.weights_dir])})
    raise UserError(
        found=f"no --weights, and no {name} under {project.absolute()}",
        needed="a checkpoint" + (f"; these are here: {', '.join(present)}" if present else ""),
        remedy=f"--weights {present[0] if present else 'PATH/TO/best.pt'}",
    )


def _checkpoints(folders: Iterable[Path | None]) -> Iterable[Path]:
    for folder in folders:
        if folder is not None and folder.is_dir():
            yield from (path for path in folder.iterdir() if path.suffix in CHECKPOINT_SUFFIXES)


def _model(request: JobRequest, weights: str) -> tuple[str, str]:
    """Name of graph or checkpoint, and which option it is from."""
    cfg = getattr(request.settings, "cfg", "")
    if cfg:
        return _graph(cfg), request.source("cfg")
    if weights:
        return _model_of_run(Path(weights)) or Path(weights).stem, f"--weights {weights}"
    return DEFAULT_MODEL, "default"


def _graph(cfg: str) -> str:
    path = Path(cfg)
    stem = path.name.removesuffix(".yaml").removesuffix(".yml")
    if path.is_file() or NARROW_SUFFIX.sub("", stem) in graph_names():
        return stem
    names = graph_names()
    near = nearest(stem, names)
    raise UserError(
        found=f"--cfg {cfg}: no such file and no model of that name",
        needed=f"a graph YAML or one of: {', '.join(names)}",
        remedy=f"--cfg {near or DEFAULT_MODEL}",
    )


def _model_of_run(weights: Path) -> str | None:
    """A checkpoint in a run folder: the plan beside it says which model it is."""
    try:
        plan = json.loads((weights.absolute().parents[1] / "plan.json").read_text(encoding="utf-8"))
        return next((str(d["value"]) for d in plan["decisions"] if d["name"] == "model"), None)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _check_data(data: str) -> None:
    path = Path(data).expanduser()
    if path.is_file():
        return
    found = f"--data {data}: a folder" if path.is_dir() else f"--data {data}: no such file ({path.absolute()})"
    near = [path] if path.is_dir() else [Path(), Path("data"), Path("/data")]
    present = sorted(str(file) for folder in near if folder.is_dir() for file in folder.glob("*.y*ml"))
    raise DataError(
        found=found,
        needed="the data.yaml of a data set" + (f"; these files are here: {', '.join(present)}" if present else ""),
        remedy=f"--data {present[0] if present else '/data/data.yaml'}"
        + ("" if present else "   (in a container: docker run -v ./data:/data …)"),
    )


def _check_source(source: str) -> None:
    """Cameras, streams and globs are the detector's to open; a plain path must exist."""
    if not source or source.isdigit() or "://" in source or any(sign in source for sign in "*?["):
        return
    path = Path(source).expanduser()
    if not path.exists():
        raise UserError(
            found=f"--source {source}: no such file or folder ({path.absolute()})",
            needed="a picture, folder, glob, video, camera number, stream address or list file",
            remedy="--source PATH; without --source a sample picture is drawn",
        )
