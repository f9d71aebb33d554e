"""Everything that a run tells and draws while it goes on; silent on ranks other than the first."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import numpy as np
import yaml

from yolov9.config.settings import TrainSettings
from yolov9.engine.atomic_file import write_text_atomically
from yolov9.engine.batch_pictures import MOST_TILES, draw_targets
from yolov9.engine.checkpoint import BEST
from yolov9.engine.device_batch import GREY_LEVELS, DeviceBatch
from yolov9.engine.final_validation import validate_final
from yolov9.engine.gpu_memory import peak_text
from yolov9.engine.heartbeat import Heartbeat
from yolov9.engine.logbook import RESULTS_FILE, Board, ProgressLines, ResultsFile, epoch_values
from yolov9.engine.optional_file import optional_file
from yolov9.engine.out_of_memory import NoRoomError, explained
from yolov9.engine.plots import draw_labels, draw_results
from yolov9.engine.process_usage import tree_cpu_s
from yolov9.engine.schedule import mosaic_off_epoch
from yolov9.engine.session import Session
from yolov9.engine.validate import ValidationResult, ValidationStopped
from yolov9.logs import LOG

DRAWN_BATCHES = 3
"""Batches of the first epoch that are drawn, so that mistakes in the labels are seen early."""


class RunReport:
    """Log lines, results.csv, TensorBoard and pictures of a run.

    Args:
        session: the run.
        heart: is told about the batches of the last validation.
    """

    def __init__(self, session: Session, heart: Heartbeat) -> None:
        self._session = session
        self._heart = heart
        context = session.context
        self._active = context.ranks.is_first
        self._plots = self._active and not context.settings.noplots
        first_epoch = session.progress.epoch
        self._results = ResultsFile(context.run_dir / RESULTS_FILE, session.progress.rows) if self._active else None
        self._board = Board(context.run_dir, first_epoch) if self._active else None
        self._lines = ProgressLines()
        self._began = self._epoch_began = time.monotonic()
        self._first_batch = 0
        self._last_batch_at = self._began
        self._cpu_before_s = 0.0
        self._wait_before = self._wait_s = 0.0

    def __enter__(self) -> "RunReport":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._board is not None:
            self._board.close()

    def start(self) -> None:
        """Says what is trained on what, and stores settings and recipe in the run folder."""
        if not self._active:
            return
        session, context = self._session, self._session.context
        settings = context.settings
        write_yaml(context.run_dir / "opt.yaml", vars(settings))
        write_yaml(context.run_dir / "hyp.yaml", context.recipe.as_dict())
        LOG.info(
            "%s, %d classes, %d pictures of %d px, batch %d x %d = %d pictures per step, %s on %s",
            session.model.graph_name,
            session.model.nc,
            len(session.train_index),
            settings.imgsz,
            context.batch * context.ranks.world,
            context.pictures_per_step // (context.batch * context.ranks.world),
            context.pictures_per_step,
            str(context.precision.dtype).removeprefix("torch."),
            context.precision.device,
        )
        self._say_mosaic(settings)
        if self._plots:
            picture = context.run_dir / "labels.jpg"
            with optional_file(picture):
                draw_labels(session.train_index.labels, session.model.names, picture)

    def start_epoch(self) -> None:
        """Starts the clocks of an epoch."""
        self._epoch_began = time.monotonic()
        self._first_batch = self._session.progress.batch
        self._wait_before = self._wait_s
        self._cpu_before_s = tree_cpu_s(os.getpid())
        self._lines.restart()

    def see_batch(self, batch: DeviceBatch) -> None:
        """Draws the first batches of a run."""
        progress = self._session.progress
        if not self._plots or progress.epoch or progress.batch >= DRAWN_BATCHES:
            return
        # Only what is shown, and converted on the CPU: a float32 copy of a whole batch may not fit on the GPU.
        shown = batch.images[:MOST_TILES].cpu().permute(0, 2, 3, 1).float()
        images = (shown * GREY_LEVELS).round().numpy().astype(np.uint8)
        picture = self._session.context.run_dir / f"train_batch{progress.batch}.jpg"
        with optional_file(picture):
            draw_targets(np.ascontiguousarray(images), batch.rows.numpy(), self._session.model.names, picture)

    def inside_epoch(self, wait_s: float) -> bool:
        """Writes a line when the last one is long ago; returns whether it did.

        Args:
            wait_s: seconds that the trainer has waited for the loader since the run began.
        """
        self._wait_s = wait_s
        self._last_batch_at = time.monotonic()
        if not self._active or not self._lines.due():
            return False
        session, progress = self._session, self._session.progress
        losses = session.step.meter.means()
        LOG.info(
            "epoch %d/%d, batch %d/%d: %s, %s",
            progress.epoch + 1,
            session.schedule.epochs,
            progress.batch,
            session.schedule.batches_per_epoch,
            _losses(losses),
            self._speed(),
        )
        return True

    def end_epoch(self, result: ValidationResult | None) -> None:
        """Writes the line, the row and the points of an epoch.

        Args:
            result: its validation; None when there was none.
        """
        session, epoch = self._session, self._session.progress.epoch
        last = (epoch + 1) * session.schedule.batches_per_epoch - 1
        losses = session.step.meter.means()
        scores = () if result is None else result.summary
        values = epoch_values(
            losses, scores, () if result is None else result.losses, session.schedule.at(last).learning_rates
        )
        LOG.info(
            "epoch %d/%d: %s%s, %s",
            epoch + 1,
            session.schedule.epochs,
            _losses(losses),
            "".join(f", {n} {v:.3f}" for n, v in zip(("P", "R", "mAP50", "mAP50-95"), scores, strict=False)),
            self._speed(),
        )
        if self._results is not None and self._board is not None:
            self._results.add(epoch, values)
            self._board.add(epoch, values)

    def final(self, stop: Callable[[], bool]) -> None:
        """Validates best.pt once more, with a table of classes and diagrams.

        Args:
            stop: asked before each batch whether to leave; all files that a run needs are there.
        """
        if not self._active:
            return
        context = self._session.context
        if self._results is not None:
            self._results.complete()
        self._session.step.micro_batches.make_room()
        try:
            with explained(context.precision.device):
                validate_final(self._session, self._heart, draw=self._plots, stop=stop)
        except NoRoomError as error:
            LOG.warning("no final validation: %s", error.found)
        except ValidationStopped:
            LOG.warning(
                "no final validation: a stop was asked for; val --weights %s does it", context.weights_dir / BEST
            )
        if context.precision.device.type == "cuda":
            LOG.info("GPU memory used at most: %s", peak_text(context.precision.device))
        if self._plots:
            with optional_file(context.run_dir / "results.png"):
                draw_results(context.run_dir / RESULTS_FILE)
        LOG.info("done in %.0f s; results are in %s", time.monotonic() - self._began, context.run_dir)

    def _speed(self) -> str:
        """Seconds and CPUs since the epoch began; the speed is that of training, without the validation after it."""
        context, loader = self._session.context, self._session.train_loader
        seconds = max(time.monotonic() - self._epoch_began, 1e-9)
        training_s = max(self._last_batch_at - self._epoch_began, 1e-9)
        pictures = (self._session.progress.batch - self._first_batch) * context.batch * context.ranks.world
        parts = [
            f"{seconds:.1f} s",
            f"{pictures / training_s:.0f} pictures/s",
            f"{(self._wait_s - self._wait_before) / training_s:.0%} waiting for data",
            f"{(tree_cpu_s(os.getpid()) - self._cpu_before_s) / seconds:.1f} CPUs busy",
            f"workers {loader.worker_count}",
        ]
        if context.precision.device.type == "cuda":
            parts.append(peak_text(context.precision.device))
        return ", ".join(parts)

    def _say_mosaic(self, settings: TrainSettings) -> None:
        off = mosaic_off_epoch(settings.epochs, settings.close_mosaic)
        if off is None:
            return
        if settings.close_mosaic > settings.epochs:
            LOG.warning("--close-mosaic %d is longer than the run: mosaic is off from the start", settings.close_mosaic)
        elif self._session.progress.epoch >= off:
            LOG.info("mosaic and mixup are off, as they were since epoch %d", off + 1)
        else:
            LOG.info("mosaic and mixup are switched off from epoch %d on", off + 1)


def write_yaml(path: Path, values: Mapping[str, object]) -> None:
    """Writes settings for people to read; a failure is logged, because the checkpoint holds them too."""
    try:
        write_text_atomically(path, yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True))
    except OSError as error:
        LOG.error("%s could not be written: %s", path, error.strerror)


def _losses(losses: tuple[float, float, float]) -> str:
    return "box {:.3f}, cls {:.3f}, dfl {:.3f}".format(*losses)
