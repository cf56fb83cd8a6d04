"""An experiment's runs as campaigns of this project, each with a folder and a log, so that they can
be resumed.

A run is identified by experiment, method, horizon and seed. In a repeated call finished runs are
read from their logs, interrupted runs continue, and a run whose settings have changed is started
again in another folder.
"""

import io
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from benchmarks.papers.experiment import Request
from benchmarks.papers.measured import Measured, measure
from orchestrator.bandit.strategies import STRATEGIES
from orchestrator.campaign.events import Event, SessionClosed
from orchestrator.errors import CampaignError, RunError
from orchestrator.running.launch import launch
from orchestrator.session.build import build
from orchestrator.session.known_results import existing
from orchestrator.session.open import create_run
from orchestrator.settings.changes import differences
from orchestrator.settings.file import read
from orchestrator.settings.loading import from_mapping
from orchestrator.settings.model import Settings
from orchestrator.store import runs

# Virtual workers: more than most batches have pulls, so that a batch needs few commits; not
# thousands, because each outcome copies the table of running attempts.
SLOTS = 256

# The folders of a run and of its data do not change its results: the log refuses other candidates.
_PLACES = ("runs", "data.folder", "data.download", "store")

Tree = Mapping[str, Any]  # plain values, as in a campaign file
Plain = dict[str, Any]  # the same, as a new mapping
Section = Tree | Callable[[int], Tree]


@dataclass(frozen=True)
class Method:
    """One algorithm of a comparison.

    Args:
        name: in the command line and in folders.
        label: in figures.
        strategy: the campaign file's section `strategy`, or a function from the seed to it.
        evaluations: ends a slow run after this number of evaluations, with the settings of the
            whole horizon.
        workers: the number of workers, instead of the problem's.
    """

    name: str
    label: str
    strategy: Section
    evaluations: int | None = None
    workers: int | None = None

    def strategy_of(self, seed: int) -> Tree:
        """Return the campaign file's section `strategy` for a seed."""
        return self.strategy(seed) if callable(self.strategy) else self.strategy


def default_method(workers: int) -> Method:
    """BBKB with its default options (calibrated model, asynchronous mode) and this number of
    workers."""
    return Method("default", "BBKB, default", {"name": "bbkb", "mode": "async"}, workers=workers)


@dataclass(frozen=True)
class Comparison:
    """Campaigns of several methods and seeds on one problem.

    Args:
        name: the folder below `--out`.
        title: the title of the table.
        problem: the common sections of the campaign files (`objective`, `space`, `candidates`,
            `workers`, …); without `workers` evaluations are simulated.
        methods: the methods.
        optimum: the largest value, if it differs from the objective's.
        published: by method, the results in the paper, in words.
    """

    name: str
    title: str
    problem: Tree
    methods: Sequence[Method]
    optimum: float | None = None
    published: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Job:
    """One run, as it is sent to another process."""

    method: str
    seed: int
    settings: Tree = field(repr=False)

    def __str__(self) -> str:
        return f"{self.method}, seed {self.seed}"


Runs = Mapping[str, tuple[Measured, ...]]  # by method's name, in the order of the seeds


def run_all(comparison: Comparison, request: Request, console: Console | None = None) -> Runs:
    """The runs of each method with each seed, `request.jobs` at the same time.

    Raises CampaignError when one does not finish, KeyboardInterrupt on an interrupt. Finished runs
    are kept.
    """
    console = console or Console(stderr=True)
    jobs = [_job(comparison, method, seed, request) for seed in range(request.seeds) for method in comparison.methods]
    measured: dict[tuple[str, int], Measured] = {}
    for job, result in _results(jobs, request.jobs):
        measured[job.method, job.seed] = result
        took = f"{len(result)} pulls, strategy {result.strategy_seconds.sum():.1f} s"
        line = f"[{len(measured)}/{len(jobs)}] {comparison.name}: {job}: {took}"
        console.print(Text(line), soft_wrap=True)
    return {
        method.name: tuple(measured[method.name, seed] for seed in range(request.seeds))
        for method in comparison.methods
    }


def campaign(comparison: Comparison, method: Method, seed: int, request: Request) -> Settings:
    """The checked campaign file of one run. Raises ConfigError."""
    evaluations = min(request.evaluations, method.evaluations or request.evaluations)
    tree: dict[str, Any] = {
        "workers": {"executor": "simulated", "count": SLOTS},
        **comparison.problem,
        "name": f"{method.name}-{evaluations}-seed{seed}",
        "seed": seed,
        "strategy": _set_batch_mode(method.strategy_of(seed)),
        "budget": {"evaluations": evaluations},
        "runs": str(request.out / comparison.name),
    }
    if method.workers is not None:
        tree["workers"] = {**tree["workers"], "count": method.workers}
    if request.data is not None:
        tree["data"] = {"folder": str(request.data)}
    return from_mapping(tree, origin=f"{comparison.name}, {method.name}")


def _set_batch_mode(strategy: Tree) -> Tree:
    """The strategy in batch mode, as in the papers, unless its section sets the mode."""
    has_modes = hasattr(STRATEGIES.get(strategy["name"]), "mode")
    return {"mode": "batch", **strategy} if has_modes else strategy


def _job(comparison: Comparison, method: Method, seed: int, request: Request) -> _Job:
    return _Job(method.name, seed, campaign(comparison, method, seed, request).resolved())


def _results(jobs: Sequence[_Job], at_once: int) -> Iterator[tuple[_Job, Measured]]:
    if at_once == 1:
        yield from ((job, _run(job)) for job in jobs)
        return
    # a new interpreter each: a fork of a process whose numerical library has threads can hang
    with ProcessPoolExecutor(at_once, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(_run, job): job for job in jobs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run(job: _Job) -> Measured:
    return measure(finish_and_read(from_mapping(job.settings)))


def finish_and_read(settings: Settings) -> Sequence[Event]:
    """Start, resume or only read a campaign, and return the log of the finished run.

    Raises the errors of `run_all`.
    """
    run, events = _find(settings)
    if run is None:
        parts = build(settings)
        run = create_run(settings, parts, existing(settings, parts.problem.candidates))
    if not _is_finished(events):
        outcome, reason = launch(run, settings, Console(file=io.StringIO()), address=None)
        if outcome == "interrupted":
            raise KeyboardInterrupt
        if outcome != "finished":
            raise CampaignError(f"{run.folder} {outcome}: {reason}")
        events = run.events()
    return events


def _find(settings: Settings) -> tuple[runs.Run | None, Sequence[Event]]:
    """The newest run of these settings and its log; None and no events when there is none. Raises
    StoreError."""
    folders = sorted(Path(settings.runs).glob(f"{settings.name}-[0-9]*"), reverse=True)
    for folder in folders:
        try:
            run = runs.open_run(folder)
            if _is_same(read(run.settings_file).tree, settings.resolved()):
                return run, run.events()
        except RunError:  # killed during its creation
            continue
    return None, ()


def _is_same(old: Tree, new: Tree) -> bool:
    return all(difference.key in _PLACES for difference in differences(old, new))


def _is_finished(events: Sequence[Event]) -> bool:
    last = events[-1] if events else None
    return isinstance(last, SessionClosed) and last.outcome == "finished"
