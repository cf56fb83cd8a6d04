"""An experiment's runs as campaigns of this project, each with a folder and a log, so that they can
be resumed; and their table: regret, batches, dictionary and time of each method.

A run is identified by experiment, method, horizon and seed. In a repeated call finished runs are
read from their logs, interrupted runs continue, and a run whose settings have changed is started
again in another folder.
"""

import hashlib
import io
import json
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.text import Text

from bbkb.objectives.errors import did_you_mean
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategy import Choose, Observation, Strategy
from bbkb.orchestrator.campaign.events import Event, SessionClosed
from bbkb.orchestrator.campaign.settings import Settings, plain
from bbkb.orchestrator.errors import CampaignError, RunError, UserError
from bbkb.orchestrator.running.launch import launch
from bbkb.orchestrator.running.resume import differences
from bbkb.orchestrator.session.build import build
from bbkb.orchestrator.session.known_results import existing
from bbkb.orchestrator.session.open import create_run
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.settings.strategies import build_strategy, dump_strategy
from bbkb.orchestrator.store import runs
from bbkb.orchestrator.yaml_file import read
from benchmarks.papers.measured import Curves, Measured, measure, regret_ratios
from benchmarks.tables import Cell, Interval, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Request:
    """The options of one command line."""

    seeds: int  # the number of seeds, which are 0 … `seeds` − 1
    evaluations: int  # the horizon T
    methods: tuple[str, ...]  # the names of the methods to run, some of the experiment's
    out: Path  # the folder for runs and results
    jobs: int = 1  # the number of campaigns at the same time
    data: Path | None = None  # the folder with data sets, if one is given


@dataclass(frozen=True)
class Experiment:
    """An experiment of a paper."""

    source: str  # paper, section and figures
    summary: str  # one line
    methods: tuple[str, ...]  # all names that `--methods` allows
    evaluations: int  # the paper's horizon T
    run: Callable[[Request], Sequence["Result"]]  # runs the experiment
    default_methods: tuple[str, ...] = ()  # the methods to run by default; all if empty
    comparisons: Callable[[Request], Sequence["Comparison"]] | None = None  # None if it has no campaigns

    def chosen(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return `names` in the experiment's order, or the default methods. Raises UserError."""
        for name in names:
            if name not in self.methods:
                known = ",".join(self.methods)
                hint = did_you_mean(name, self.methods)
                raise UserError(f"--methods must be some of {known}, got {name!r}{hint}")
        shown = names or self.default_methods or self.methods
        return tuple(name for name in self.methods if name in shown)


# Virtual workers: more than most batches have pulls, so that a batch needs few commits; not
# thousands, because each outcome copies the table of running attempts.
SLOTS = 256

# The folders of a run and of its data do not change its results: the log rejects other candidates.
_PLACES = ("runs", "data.folder", "data.download", "store")

Tree = Mapping[str, Any]  # plain values, as in a campaign file
Plain = dict[str, Any]  # the same, as a new mapping


@dataclass(frozen=True)
class Method:
    """One algorithm of a comparison."""

    name: str  # in the command line and in folders
    label: str  # in tables
    strategy: Tree  # the campaign file's section
    evaluations: int | None = None  # ends a slow run early, with the settings of the whole horizon
    workers: int | None = None  # instead of the problem's
    known: Callable[[int], Path] | None = None  # returns the table of a seed's known results


DEFAULT_LABEL = "BBKB, default"


def default_method(workers: int) -> Method:
    """BBKB with its default options (calibrated model, asynchronous mode)."""
    return Method("default", DEFAULT_LABEL, {"name": "bbkb", "mode": "async"}, workers=workers)


@dataclass(frozen=True)
class Comparison:
    """Campaigns of several methods and seeds on one problem."""

    name: str  # the folder below `--out`
    title: str  # of the table
    problem: Tree  # common sections of the campaign files; without `workers` evaluations are simulated
    methods: Sequence[Method]
    optimum: float | None = None  # the largest value, if it differs from the objective's
    published: Mapping[str, str] = field(default_factory=dict)  # by method, the paper's results in words


Runs = Mapping[str, tuple[Measured, ...]]  # by method's name, in the order of the seeds


def run_all(comparison: Comparison, request: Request) -> Runs:
    """The runs of each method with each seed, `request.jobs` at the same time.

    Raises CampaignError when one does not finish, KeyboardInterrupt on an interrupt. Finished runs
    are kept.
    """
    console = Console(stderr=True)
    keys = [(method, seed) for seed in range(request.seeds) for method in comparison.methods]
    trees = [plain(campaign(comparison, method, seed, request)) for method, seed in keys]
    measured: dict[tuple[str, int], Measured] = {}
    # a new interpreter each: a fork of a process whose numerical library has threads can hang
    with ProcessPoolExecutor(request.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for (method, seed), run in zip(keys, pool.map(_run, trees), strict=True):
            measured[method.name, seed] = run
            took = f"{len(run)} pulls, strategy {run.strategy_seconds.sum():.1f} s"
            line = f"[{len(measured)}/{len(keys)}] {comparison.name}: {method.name}, seed {seed}: {took}"
            console.print(Text(line), soft_wrap=True)
    return {
        method.name: tuple(measured[method.name, seed] for seed in range(request.seeds))
        for method in comparison.methods
    }


def campaign(comparison: Comparison, method: Method, seed: int, request: Request) -> Settings:
    """The checked campaign file of one run. Raises ConfigError."""
    evaluations = min(request.evaluations, method.evaluations or request.evaluations)
    has_modes = hasattr(STRATEGIES.get(method.strategy["name"]), "mode")
    tree: dict[str, Any] = {
        "workers": {"executor": "simulated", "count": SLOTS},
        **comparison.problem,
        "name": f"{method.name}-{evaluations}-seed{seed}",
        "seed": seed,
        # in batch mode, as in the papers, unless its section sets the mode
        "strategy": {"mode": "batch", **method.strategy} if has_modes else method.strategy,
        "budget": {"evaluations": evaluations},
        "runs": str(request.out / comparison.name),
    }
    if method.known is not None:
        tree["known_results"] = [{"table": str(method.known(seed)), "reward": "reward"}]
    if method.workers is not None:
        tree["workers"] = {**tree["workers"], "count": method.workers}
    if request.data is not None:
        tree["data"] = {"folder": str(request.data)}
    return from_mapping(tree, origin=f"{comparison.name}, {method.name}")


def _run(tree: Tree) -> Measured:
    return measure(finish_and_read(from_mapping(tree)))


def finish_and_read(settings: Settings) -> Sequence[Event]:
    """Start, resume or only read a campaign, and return the log of the finished run.

    Raises the errors of `run_all`.
    """
    run, events = _find(settings)
    if run is None:
        parts = build(settings)
        run = create_run(settings, parts, existing(settings, parts.problem))
    last = events[-1] if events else None
    if not (isinstance(last, SessionClosed) and last.outcome == "finished"):
        outcome, reason = launch(run, settings, Console(file=io.StringIO()), address=None)
        if outcome == "interrupted":
            raise KeyboardInterrupt
        if outcome != "finished":
            raise CampaignError(f"{run.folder} {outcome}: {reason}")
        events = run.events()
    return events


def _find(settings: Settings) -> tuple[runs.Run | None, Sequence[Event]]:
    """The newest run of these settings and its log; None without events if there is none."""
    folders = sorted(Path(settings.runs).glob(f"{settings.name}-[0-9]*"), reverse=True)
    for folder in folders:
        try:
            run = runs.open_run(folder)
            changed = differences(read(run.settings_file).tree, plain(settings))
            if all(difference.key in _PLACES for difference in changed):
                return run, run.events()
        except RunError:  # killed during its creation
            continue
    return None, ()


UNIFORM = "uniform"  # the method whose regret is the denominator of the regret ratios
COLUMNS = (
    *("method", "pulls", "regret ratio", "average regret", "simple regret", "batches"),
    *("largest batch", "model order", "strategy's s", "s with training", "paper"),
)


@dataclass(frozen=True)
class Result:
    """The table of an experiment's problem, and its figure."""

    table: Table
    curves: Table  # the figure's numbers
    draw: "Callable[[Figure], None]"  # draws the figure
    settings: Mapping[str, str] = field(default_factory=dict)  # by method's label, `digest` of its strategy


def digest(strategy: Tree) -> str:
    """Return a digest of a strategy's section with all its defaults; of the default's section, also
    of its first picks in a small search, which change with constants in the code."""
    built = build_strategy(strategy)
    whole = [dump_strategy(built), _first_picks(built) if strategy == default_method(workers=1).strategy else []]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]


def _first_picks(strategy: Strategy[Any]) -> list[int]:
    """Return 64 picks, 8 at a time, among 400 arms with individual effects and noisy rewards."""
    rng = np.random.default_rng(0)
    arms = Arms.of(rng.random((400, 2)))
    means = np.sin(5.0 * arms.features).sum(axis=1) + 0.2 * rng.standard_normal(len(arms))
    state, picks = strategy.init(arms, rng), list[int]()
    while len(picks) < 64:
        decision = strategy.ask(state, (), 8)
        assert isinstance(decision, Choose)
        chosen = [pick.arm for pick in decision.picks]
        rewards = means[chosen] + 0.05 * rng.standard_normal(len(chosen))
        state = strategy.tell(state, list(map(Observation, chosen, rewards.tolist())), rng)
        picks += chosen
    return picks


def experiment(
    source: str,
    summary: str,
    methods: tuple[str, ...],
    evaluations: int,
    comparisons: Callable[[Request], Sequence[Comparison]],
    default_methods: tuple[str, ...] = (),
) -> Experiment:
    """Make an experiment that consists of comparisons; see `Experiment` for the arguments."""

    def run(request: Request) -> list[Result]:
        return [_result(one, run_all(one, request)) for one in comparisons(request)]

    return Experiment(source, summary, methods, evaluations, run, default_methods, comparisons)


def _result(comparison: Comparison, results: Runs) -> Result:
    """Make the table and the figure of a comparison; intervals are over seeds."""
    best = max(float(np.nanmax(run.values)) for runs in results.values() for run in runs)

    def optimum(run: Measured) -> float:
        """The comparison's optimum, the run's, or the largest value of all runs if both are unknown."""
        if comparison.optimum is not None:
            return comparison.optimum
        return run.optimum if np.isfinite(run.optimum) else best

    runs = {name: tuple(replace(run, optimum=optimum(run)) for run in runs) for name, runs in results.items()}
    rows = [_row(comparison, method.name, runs) for method in comparison.methods]
    by_label = {method.label: runs[method.name] for method in comparison.methods}
    curves = Curves(comparison.title, by_label, runs.get(UNIFORM))
    return Result(
        Table(comparison.name, comparison.title, COLUMNS, rows),
        curves.table(f"{comparison.name}-curves"),
        curves.draw,
        {method.label: digest(method.strategy) for method in comparison.methods},
    )


def _row(comparison: Comparison, name: str, results: Runs) -> tuple[Cell, ...]:
    runs = results[name]
    method = next(method for method in comparison.methods if method.name == name)
    uniform = results.get(UNIFORM)
    return (
        method.label,
        len(runs[0]),
        "–" if uniform is None else Interval.of([ratio[-1] for ratio in regret_ratios(runs, uniform)]),
        Interval.of([run.regret[-1] / len(run) for run in runs]),
        Interval.of([run.simple_regret[-1] for run in runs]),
        Interval.of([run.batch_count for run in runs]),
        Interval.of([int(run.batch_sizes.max()) for run in runs]),
        Interval.of([int(run.model_orders[-1]) for run in runs]),
        Interval.of([float(run.strategy_seconds.sum()) for run in runs]),
        Interval.of([run.total_seconds for run in runs]),
        comparison.published.get(name, "–"),
    )
