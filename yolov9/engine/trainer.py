"""Training: from settings to an exit code, fresh or going on with a run."""

import os
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from yolov9.config.environment import Environment, read_environment
from yolov9.config.recipe import load_recipe
from yolov9.config.settings import TrainSettings
from yolov9.engine.captured import side_stream
from yolov9.engine.checkpoint import newest_loadable
from yolov9.engine.checkpoint_writer import CheckpointWriter
from yolov9.engine.distributed import process_group
from yolov9.engine.gpu_failure import gpu_failure_explained
from yolov9.engine.gpu_memory import limit_allocator
from yolov9.engine.heartbeat import Heartbeat, heartbeat_file
from yolov9.engine.out_of_memory import explained
from yolov9.engine.plan_record import note_refused
from yolov9.engine.precision import choose_precision, resolve_device, set_backend_switches
from yolov9.engine.result_folder import make_run_folder
from yolov9.engine.resume import (
    already_finished,
    log_resume,
    merge_settings,
    nothing_left,
    recipe_of,
    refused_settings,
)
from yolov9.engine.run_context import RunContext, with_defaults
from yolov9.engine.run_report import RunReport
from yolov9.engine.run_saver import RunSaver
from yolov9.engine.session import open_session
from yolov9.engine.stop import StoppedAtOnce, StopRequest
from yolov9.engine.training_loop import TrainingLoop
from yolov9.engine.training_state import restore
from yolov9.errors import ExitCode
from yolov9.logs import LOG


class Trainer:
    """One training run, from its settings to its exit code.

    Args:
        settings: options of `train`, usually completed by a plan; `resume` is a run folder or a checkpoint.
        run_dir: folder for the results; when a run is resumed from another folder, that one is used.
        given: names of the options that the user typed; None: those that differ from the defaults.
        stop: asked after each micro-batch whether to stop; None: SIGTERM and SIGINT ask for it.
        data_copy: data.yaml of a copy on faster storage to read in place of the data set; "" for none.
    """

    def __init__(
        self,
        settings: TrainSettings,
        run_dir: Path,
        given: Collection[str] | None = None,
        stop: StopRequest | None = None,
        *,
        data_copy: str = "",
    ) -> None:
        self._settings = settings
        self._data_copy = data_copy
        self._stop = stop or StopRequest()
        self._run_dir = run_dir
        self._given = given

    def run(self) -> ExitCode:
        """Trains.

        Returns:
            DONE, or STOPPED_RESUMABLE after a stop that was asked for.

        Raises:
            UserError: something that the user can put right.
        """
        environment = read_environment()
        first = environment.rank == 0
        heart = Heartbeat(heartbeat_file(environment, os.getpid()) if first else None)
        with self._stop as stop, heart:
            # Several ranks stop together, after a batch: one that left before would leave the others waiting.
            stop.at_once = environment.world_size == 1
            try:
                return self._run(environment, stop, heart)
            except StoppedAtOnce:
                LOG.warning("stopped before the first batch: there is nothing to save")
                return ExitCode.STOPPED_RESUMABLE

    def _run(self, environment: Environment, stop: StopRequest, heart: Heartbeat) -> ExitCode:
        settings, content = self._settings, None
        recipe = load_recipe(settings.hyp)
        if settings.resume:
            path, content = newest_loadable(Path(settings.resume))
            settings, lines = merge_settings(content["training"]["settings"], settings, self._given)
            if nothing_left(content, settings):
                if settings.continue_run:
                    LOG.info("%s is finished: nothing is left to do", path.parents[1])
                    return ExitCode.DONE
                raise already_finished(path, content)
            recipe, self._run_dir = recipe_of(content), path.parent.parent
            log_resume(path, content, lines)
            if environment.rank == 0:
                note_refused(self._run_dir, refused_settings(self._settings, settings, self._given))
        make_run_folder(self._run_dir)
        device = resolve_device(settings.device, environment.local_rank)
        set_backend_switches(device)
        limit_allocator(device, settings.gpu_share)
        with process_group(environment, device) as ranks:
            context = RunContext(
                settings=with_defaults(settings),
                recipe=recipe,
                run_dir=self._run_dir,
                precision=choose_precision(settings.amp, device),
                ranks=ranks,
                environment=environment,
                data_copy=self._data_copy,
            )
            return _train(context, content, stop, heart)


def _train(context: RunContext, content: dict[str, Any] | None, stop: StopRequest, heart: Heartbeat) -> ExitCode:
    with ExitStack() as stack:
        stack.enter_context(gpu_failure_explained())
        stack.enter_context(explained(context.precision.device))
        stack.enter_context(side_stream(context.precision.device))
        session = stack.enter_context(open_session(context, content))
        if content is not None:
            restore(session, content)
        writer = stack.enter_context(CheckpointWriter())
        report = stack.enter_context(RunReport(session, heart))
        loop = TrainingLoop(session, RunSaver(session, writer), report, stop, heart)
        stop.at_once = False
        return loop.run()
