"""`bench`: measures loader, and with a GPU the training step, with several numbers of workers and batches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from entrypoint.host import HostFacts
from entrypoint.options import build_parser, convert, options_of, parse_known
from entrypoint.plan import Plan, make_plan
from entrypoint.plan.folders import project_of
from entrypoint.prepare import plan_job, prepare_request, write_plan
from entrypoint.request import JobRequest
from entrypoint.rundir import make_run_dir
from entrypoint.trainer_process import run_trainer
from yolov9.config.settings import TrainSettings, option
from yolov9.errors import UserError
from yolov9.logs import LOG, setup_logging

DESCRIPTION = (
    "Measures how fast pictures are prepared with several numbers of workers and batches, and with a GPU how fast the "
    "training is; says whether CPU, disk or GPU is the limit, and which setting to use. All options of train that "
    "shape the work are accepted: --data, --img, --cfg, --hyp, --cache, --device, --project, --name …"
)
PROJECT = "runs/bench"


@dataclass(kw_only=True)
class BenchOptions:
    """Options of `bench` beside those of `train`."""

    seconds: float = option(60.0, "--seconds", help="time for all measurements together")
    workers: list[int] = option([], "--workers", nargs="+", help="numbers of loader processes; default: up to the CPUs")
    batch: list[int] = option(
        [],
        "--batch",
        "--batch-size",
        nargs="+",
        help="pictures per forward pass; default: what the plan gives, and less",
    )


def run_bench(argv: Sequence[str]) -> int:
    """Measures, prints a table and writes bench.csv and bench.png into the run folder; returns the exit code.

    Raises:
        UserError: an option or a batch that cannot be.
    """
    options, rest = _read(argv)
    request = _request(rest)
    setup_logging(quiet=request.settings.quiet)
    facts, plan = plan_job(request)
    workers = sorted(set(options.workers)) or _workers(facts, request, plan)
    batches = sorted(set(options.batch)) or _batches(plan)
    if plan.value("device") != "cpu":
        batches = _that_fit(facts, request, batches)
    for note in plan.notes:
        LOG.info("%s", note)
    LOG.info("device: %s (%s)", plan.value("device"), plan["device"].reason)
    LOG.info("workers %s x batch %s, %g seconds", workers, batches, options.seconds)
    run_dir = make_run_dir(project_of(request), request.settings.name, exist_ok=request.settings.exist_ok)
    bench = {"seconds": options.seconds, "workers": workers, "batches": batches}
    file = write_plan(run_dir, request, facts, plan, command="bench", bench=bench)
    return run_trainer(file, facts, plan).exit_code


def _read(argv: Sequence[str]) -> tuple[BenchOptions, list[str]]:
    """Returns this command's own options, and the words that are left for `train`."""
    parser = build_parser("bench", DESCRIPTION, {"the bench": [BenchOptions]})
    known = options_of([BenchOptions])
    texts, rest = parse_known(parser, argv)
    values = {}
    for name, raw in texts.items():
        text = ",".join(raw) if isinstance(raw, list) else raw
        values[name] = convert(known[name], text, f"--{name} {text}")
    options = BenchOptions(**values)
    _check(options.seconds > 0, f"--seconds {options.seconds:g}", "a number above 0", "--seconds 60")
    _check(
        min(options.workers, default=1) >= 1, f"--workers {options.workers}", "whole numbers from 1 up", "--workers 1 2"
    )
    _check(min(options.batch, default=1) >= 1, f"--batch {options.batch}", "whole numbers from 1 up", "--batch 8 16")
    return options, rest


def _request(rest: list[str]) -> JobRequest:
    request, run_dir = prepare_request("train", rest)
    _check(run_dir is None, "--resume", "nothing to resume", "bench without --resume")
    settings = _settings(request)
    return replace(request, settings=replace(settings, stage="off", project=settings.project or PROJECT))


def _settings(request: JobRequest) -> TrainSettings:
    assert isinstance(request.settings, TrainSettings), "the request is one of train"
    return request.settings


def _check(good: bool, found: str, needed: str, remedy: str) -> None:
    if not good:
        raise UserError(found=f"bench: {found}", needed=needed, remedy=remedy)


def _workers(facts: HostFacts, request: JobRequest, plan: Plan) -> list[int]:
    """1, 2, 4 … up to what the plan gives; without a GPU nothing else computes, so up to all CPUs."""
    most = int(plan.value("workers"))
    if plan.value("device") == "cpu" and request.settings.workers is None:
        most = max(most, math.floor(facts.cpu.usable / request.job.jobs))
    most = max(1, most)
    return sorted({*(1 << power for power in range(most.bit_length()) if 1 << power < most), most})


def _batches(plan: Plan) -> list[int]:
    """The planned batch, a half and a quarter of it; without a GPU the batch makes no difference."""
    batch = int(plan.value("batch_size"))
    return [batch] if plan.value("device") == "cpu" else sorted({max(1, batch // part) for part in (1, 2, 4)})


def _that_fit(facts: HostFacts, request: JobRequest, batches: list[int]) -> list[int]:
    """Leaves out batches that the plan would not run as they are."""
    fitting = []
    for batch in batches:
        settings = replace(_settings(request), batch_size=batch)
        decision = make_plan(facts, replace(request, settings=settings))["batch_size"]
        if decision.degraded:
            LOG.warning("batch %d is left out: %s", batch, decision.reason)
        else:
            fitting.append(batch)
    _check(bool(fitting), f"no batch of {batches} fits", "a batch that fits into the memory", "--batch 1")
    return fitting
