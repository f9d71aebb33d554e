"""The loop over epochs and batches, with validation, checkpoints and an orderly stop at any step."""

from functools import partial

from yolov9.config.stages import size_at
from yolov9.engine.average_judge import AverageJudge
from yolov9.engine.device_batch import DeviceBatch, DeviceFeed, MultiScale
from yolov9.engine.distributed import any_rank
from yolov9.engine.divergence import MAX_BAD_UPDATES_IN_A_ROW, diverged
from yolov9.engine.heartbeat import Heartbeat
from yolov9.engine.micro_batches import MemoryEvent, log_event
from yolov9.engine.optimizer import set_step_values
from yolov9.engine.out_of_memory import NoRoomError
from yolov9.engine.plan_record import record_memory_event
from yolov9.engine.run_report import RunReport
from yolov9.engine.run_saver import RunSaver
from yolov9.engine.schedule import optimizer_step_due
from yolov9.engine.session import Session
from yolov9.engine.stop import StopRequest
from yolov9.engine.validate import ValidationResult, ValidationStopped, validate
from yolov9.engine.worker_control import WorkerControl
from yolov9.errors import ExitCode
from yolov9.logs import LOG

BATCHES_TO_TAKE_MEMORY = 3
"""A batch shape has all its memory once it ran as it is, was captured, and the next batch is on the GPU."""
STOP_CHECK_INTERVAL = 8
"""With several ranks, micro-batches between two agreements on whether to stop."""


class TrainingLoop:
    """Runs the epochs of a session.

    Args:
        session: the run, fresh or restored.
        saver: writes checkpoints.
        report: writes log lines, tables and pictures.
        stop: tells whether to stop after the current micro-batch.
        heart: is told about each finished batch.
    """

    def __init__(
        self, session: Session, saver: RunSaver, report: RunReport, stop: StopRequest, heart: Heartbeat
    ) -> None:
        self._session = session
        self._saver = saver
        self._report = report
        self._stop = stop
        self._heart = heart
        self._imgsz = 0
        """Picture size of the stage."""
        self._batches = 0
        """Loaded batches that this process has trained on."""
        settings, precision = session.context.settings, session.context.precision
        micro_batches = session.step.micro_batches
        micro_batches.on_change = self._note_memory
        self._workers = WorkerControl(session.train_loader, fixed=settings.fixed_workers)
        self._feed = DeviceFeed(
            precision.device, precision.dtype, make_room=micro_batches.make_room, painter=session.painter
        )
        graphs = session.step.gradient.graphs
        is_first = session.context.ranks.is_first
        self._judge = AverageJudge(session.ema.model, precision, session.loss, graphs) if is_first else None
        self._multi_scale = MultiScale(settings.imgsz, settings.seed) if settings.multi_scale else None

    def run(self) -> ExitCode:
        """Trains until the last epoch, the end of patience, or a stop."""
        session, progress = self._session, self._session.progress
        progress.finished = False
        self._report.start()
        while progress.epoch < session.schedule.epochs:
            self._report.start_epoch()
            if not self._train_epoch():
                return self._stopped()
            self._check_faults()
            session.step.gather()
            # Before validation, so that nothing that happens there costs the epoch.
            self._saver.save_last()
            try:
                ended = self._end_epoch()
            except ValidationStopped:
                return self._stopped()
            progress.epoch, progress.batch = progress.epoch + 1, 0
            session.step.meter.reset()
            if ended or progress.epoch == session.schedule.epochs:
                break
            session.step.micro_batches.epoch_done()  # Here it is the next epoch that a larger micro-batch is noted for.
        progress.finished = True
        self._saver.save_last(final=True)
        self._saver.finish()
        self._report.final(lambda: self._stop.requested)
        return ExitCode.DONE

    def _stopped(self) -> ExitCode:
        progress = self._session.progress
        self._session.step.gather()
        self._saver.save_last(final=True)
        self._saver.finish()
        LOG.warning("stopped in epoch %d after %d batches; --resume goes on", progress.epoch + 1, progress.batch)
        return ExitCode.STOPPED_RESUMABLE

    def _train_epoch(self) -> bool:
        """Trains what is left of the current epoch; returns False when it was stopped in between."""
        session, progress = self._session, self._session.progress
        if progress.batch >= session.schedule.batches_per_epoch:
            return True
        session.model.train()
        self._enter_stage()
        batches = session.train_loader.epoch(progress.epoch, start_batch=progress.batch)
        for batch in self._feed(self._workers.watch(batches)):
            self._train_batch(batch)
            progress.batch += 1
            self._heart.step(f"training, epoch {progress.epoch + 1}, batch {progress.batch}")
            if self._stop_agreed():
                return False
            if self._saver.due():
                self._save_here()
            if self._report.inside_epoch(self._feed.wait_s):
                self._check_faults()
        return True

    def _enter_stage(self) -> None:
        session, stages = self._session, self._session.context.stages
        imgsz = size_at(stages, session.progress.epoch) if stages else session.context.settings.imgsz
        if stages and imgsz != self._imgsz:
            LOG.info("epoch %d: pictures of %d px from now on", session.progress.epoch + 1, imgsz)
            session.step.gradient.expect_other_shapes()
        self._imgsz = imgsz

    def _train_batch(self, batch: DeviceBatch) -> None:
        session, progress, iteration = self._session, self._session.progress, self._session.iteration
        values = session.schedule.at(iteration)
        resize = None if self._multi_scale is None else partial(self._multi_scale.apply, iteration=iteration)
        self._report.see_batch(batch)
        try:
            session.step.add_gradient(batch.images, batch.targets, resize)
        except NoRoomError:
            self._save_here(final=True)
            raise
        if optimizer_step_due(iteration, progress.last_step, values.accumulate):
            set_step_values(session.optimizer, values)
            session.step.update()
            progress.last_step = iteration
            progress.optimizer_steps += 1
        self._batches += 1
        if self._batches == BATCHES_TO_TAKE_MEMORY:
            session.claim.release()

    def _note_memory(self, event: MemoryEvent) -> None:
        log_event(event)
        context, progress = self._session.context, self._session.progress
        rank = context.ranks.rank
        record_memory_event(context.run_dir, event, epoch=progress.epoch, batch=progress.batch, rank=rank)
        if event.after < event.before:
            self._save_here()  # The failed batch is undone; where memory is short, worse may follow.

    def _end_epoch(self) -> bool:
        """Validates on the first rank and tells all of them whether the run ends here for want of progress."""
        session, epoch = self._session, self._session.progress.epoch
        settings, ranks = session.context.settings, session.context.ranks
        last = epoch + 1 == session.schedule.epochs
        exhausted = stopped = False
        if ranks.is_first:
            result = None
            try:
                if last or not settings.noval:
                    result = self._validate()
            except ValidationStopped:
                stopped = True
            except NoRoomError as error:
                LOG.warning("no scores for this epoch: %s", error.found)
            if not stopped:
                self._report.end_epoch(result)
                if result is not None:
                    if session.stopper.record(epoch, result.scores.fitness):
                        self._saver.save_best(epoch)
                    exhausted = session.stopper.should_stop(epoch)
                self._saver.save_period(epoch)
        device = session.context.precision.device
        if any_rank(stopped, ranks, device):
            raise ValidationStopped
        if exhausted:
            LOG.info("no better score for %d epochs: the run ends", settings.patience)
        return any_rank(exhausted, ranks, device)

    def _validate(self) -> ValidationResult:
        session = self._session
        assert session.val_loader is not None, "the first rank validates"
        assert self._judge is not None, "the first rank validates"
        session.step.micro_batches.with_room(self._judge.update, "the model for validation")
        return validate(
            self._judge,
            session.val_loader,
            watch=lambda *_: self._heart.beat(f"validation of epoch {session.progress.epoch + 1}"),
            stop=lambda: self._stop.requested,
            make_room=session.step.micro_batches.make_room,
            most_together=session.validation_batch,
        )

    def _stop_agreed(self) -> bool:
        session = self._session
        if session.context.ranks.world > 1 and session.progress.batch % STOP_CHECK_INTERVAL:
            return False
        return any_rank(self._stop.requested, session.context.ranks, session.context.precision.device)

    def _save_here(self, *, final: bool = False) -> None:
        """Saves between two batches; with several ranks only after an update: gradients lie on all of them before."""
        session = self._session
        if session.context.ranks.world == 1 or session.progress.last_step == session.iteration - 1:
            self._saver.save_last(final=final)

    def _check_faults(self) -> None:
        faults = self._session.step.faults()
        if faults.total:
            LOG.warning("%d updates left out so far: their gradient was not finite", faults.total)
        if faults.in_a_row >= MAX_BAD_UPDATES_IN_A_ROW:
            raise diverged(f"the last {faults.in_a_row} updates had a gradient that is not finite")
