"""Files a job names: found or refused before anything starts, without loading PyTorch."""

import json
from dataclasses import replace
from pathlib import Path

from entrypoint.options import nearest
from entrypoint.request import JobRequest
from yolov9.config.graph_names import find_graph, known_graphs
from yolov9.config.recipe import load_recipe
from yolov9.config.settings import DEFAULT_MODEL, DetectSettings, TrainSettings, ValSettings
from yolov9.engine.find_weights import find_weights
from yolov9.engine.plan_record import PLAN_FILE
from yolov9.errors import UserError
from yolov9.read_watch import reading


def resolve_inputs(request: JobRequest) -> JobRequest:
    """Returns the request with the paths that will be used, the model's name and the number of pictures.

    Raises:
        UserError: weights, model, recipe or source cannot be found.
        DataError: the data set file or a split that it names cannot be found.
    """
    settings = request.settings
    weights = settings.weights
    if weights or not isinstance(settings, TrainSettings):
        weights = str(find_weights(weights, request.environment))
    model, source = _model(request, weights)
    changed = replace(settings, weights=weights)
    if isinstance(changed, TrainSettings):
        load_recipe(changed.hyp)
        cfg = changed.cfg if changed.cfg or weights else model
        # A run may be resumed from another working folder.
        changed = replace(changed, cfg=cfg, data=str(Path(changed.data).absolute()) if changed.data else "")
    if isinstance(settings, DetectSettings):
        with reading(settings.source):
            _check_source(settings)
    counts = _check_data(request) if getattr(settings, "data", "") else {}
    request = replace(request, settings=changed, model=model, model_source=source)
    return replace(request, pictures=sum(counts.values()), training_pictures=counts["train"]) if counts else request


def _model(request: JobRequest, weights: str) -> tuple[str, str]:
    """Name of graph or checkpoint, and which option it is from."""
    cfg = getattr(request.settings, "cfg", "")
    if cfg:
        return _graph(cfg), request.source("cfg")
    if weights:
        return _model_of_run(Path(weights)) or Path(weights).stem, f"--weights {weights}"
    if request.model:
        return request.model, request.model_source  # Of the run that goes on.
    return DEFAULT_MODEL, "default"


def _graph(cfg: str) -> str:
    found = find_graph(cfg)
    if found is not None:
        return found.name
    names = known_graphs()
    near = nearest(Path(cfg).stem, names)
    raise UserError(
        found=f"--cfg {cfg}: no graph file and no model of that name",
        needed=f"a graph YAML or one of: {', '.join(names)}",
        remedy=f"--cfg {near or DEFAULT_MODEL}",
    )


def _model_of_run(weights: Path) -> str | None:
    """A checkpoint in a run folder: the plan beside it says which model it is."""
    try:
        plan = json.loads((weights.absolute().parents[1] / PLAN_FILE).read_text(encoding="utf-8"))
        return next((str(d["value"]) for d in plan["decisions"] if d["name"] == "model"), None)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _check_data(request: JobRequest) -> dict[str, int]:
    """Reads the data set file; counts the pictures of both splits of a training."""
    from yolov9.data import load_dataset_config  # Takes a quarter of a second, and is not always needed.
    from yolov9.data.listing import list_pictures

    settings = request.settings
    needed: tuple[str, ...] = ("train", "val")
    if isinstance(settings, ValSettings):
        needed = () if settings.task == "speed" else (settings.task,)
    elif isinstance(settings, DetectSettings):
        needed = ()
    config = load_dataset_config(settings.data, require=needed, environment=request.environment)
    if not isinstance(settings, TrainSettings):
        return {}
    return {split: len(list_pictures(config.sources(split), config.root)) for split in needed}


def _check_source(settings: DetectSettings) -> None:
    """Refuses a source that does not exist; what is in it is the detector's business."""
    if settings.source and not Path(settings.source).expanduser().exists():
        from yolov9.data.sources import is_live, open_source

        if not is_live(settings.source) and "://" not in settings.source:
            open_source(settings.source, vid_stride=settings.vid_stride)
