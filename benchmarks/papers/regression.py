"""Calandriello et al. 2020, section 5, figures 1 and 2: regret ratio and time on Abalone and
Cadata.

Each row is an arm, the reward is the target scaled to [0, 1] plus N(0, 0.01²), and features are
standardised (the paper does not say how it scales them). The denominator of a ratio is the uniform
policy's regret with the same seed.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from benchmarks.papers.authors import compare
from benchmarks.papers.calandriello_2020 import LABELS, method, with_uniform
from benchmarks.papers.campaigns import Comparison, Runs, run_all
from benchmarks.papers.experiment import Experiment, Request
from benchmarks.papers.findings import Curve, Figure, Findings, Floats, Interval, Panel, Table
from benchmarks.papers.measured import Measured
from benchmarks.regret import regret_ratio

TIMED = 2000  # steps whose time figure 2 shows
RATIO_LABEL = "R_t / R_t of uniform"
METHODS = ("bbkb", "bbkb_local", "bkb", "gp_ucb", "gp_bucb", "async_ts", "epsilon_greedy", "default", "uniform")

# Table 1 of appendix D; methods that are not in it, such as ε-greedy, have BBKB's bandwidth
BANDWIDTHS: Mapping[str, Mapping[str, float]] = {
    "abalone": {"bbkb": 17.5, "gp_ucb": 5.0, "gp_bucb": 12.5, "async_ts": 10.0},
    "cadata": {"bbkb": 12.5, "async_ts": 10.0},
}


def run(data_sets: Sequence[str], request: Request) -> Findings:
    """Reproduce figures 1 and 2 for the `data_sets`; with both, the panels are side by side as in
    the paper."""
    tables, results, numbers = [], {}, {}
    for name in data_sets:
        compared = comparison(name, request)
        results[name] = run_all(compared, request)
        tables.append(_summary(name, results[name], request.evaluations))
        if request.authors is not None:
            table, numbers[f"authors, {name}"] = compare(compared, results[name], request)
            tables.append(table)
    return Findings(tables, _figures(results), _notes(request), numbers)


def comparison(name: str, request: Request) -> Comparison:
    """The methods of the request and the uniform policy on the data set `name`, with the bandwidths
    of table 1."""
    bandwidths = BANDWIDTHS[name]
    methods = [
        method(method_name, bandwidths.get(method_name, bandwidths["bbkb"]), request.evaluations)
        for method_name in with_uniform(request.methods)
    ]
    return Comparison(name, {"objective": {"name": name}}, methods)


def ratios(results: Runs, name: str) -> Floats:
    """The regret ratio (seeds, T) of one method's runs, where T is the number of its pulls."""
    pairs = zip(results[name], results["uniform"], strict=True)
    return np.stack([regret_ratio(run.regret, uniform.regret[: len(run)]) for run, uniform in pairs])


def ratio_curves(results: Runs) -> list[Curve]:
    """The regret ratio against t of all methods except the uniform policy."""
    return [
        Curve.over_seeds(LABELS[name], steps(runs), ratios(results, name))
        for name, runs in results.items()
        if name != "uniform"
    ]


def steps(runs: Sequence[Measured]) -> Floats:
    """t = 1, 2, … (T,)."""
    return np.arange(1.0, len(runs[0]) + 1)


def _summary(name: str, results: Runs, horizon: int) -> Table:
    columns = ("method", "pulls", "regret ratio", "regret", "simple regret", "batches", "dictionary")
    timed = min(TIMED, horizon)
    rows = [
        (
            LABELS[method_name],
            len(runs[0]),
            Interval.of(ratios(results, method_name)[:, -1]),
            Interval.of([run.regret[-1] for run in runs]),
            Interval.of([run.simple_regret[-1] for run in runs]),
            Interval.of([run.batch_count for run in runs]),
            Interval.of([run.dictionary_sizes[-1] for run in runs]),
            Interval.of([run.clock[: min(timed, len(run))][-1] for run in runs]),
            Interval.of([run.clock[-1] for run in runs]),
        )
        for method_name, runs in results.items()
    ]
    return Table(name, f"{name}, T = {horizon}", (*columns, f"s for {timed} pulls", "s for all pulls"), rows)


def _figures(results: Mapping[str, Runs]) -> list[Figure]:
    """One figure with both panels for one data set, else the two figures of the paper."""
    ratio = [Panel(f"Regret ratio on {name}", "t", RATIO_LABEL, ratio_curves(runs)) for name, runs in results.items()]
    time = [
        Panel(f"Time on {name}", "t", "strategy's seconds", _time_curves(runs), y_scale="log")
        for name, runs in results.items()
    ]
    if len(results) == 1:
        name = next(iter(results))
        return [Figure(name, f"BBKB, figures 1 and 2: {name}", [*ratio, *time])]
    names = " and ".join(results)
    return [
        Figure("figure-1", f"BBKB, figure 1: regret ratio on {names}", ratio),
        Figure("figure-2", f"BBKB, figure 2: time on {names}", time),
    ]


def _time_curves(results: Runs) -> list[Curve]:
    return [
        Curve.over_seeds(LABELS[name], steps(runs)[:TIMED], [run.clock[:TIMED] for run in runs])
        for name, runs in results.items()
        if name != "uniform"
    ]


def _notes(request: Request) -> tuple[str, ...]:
    return (
        f"{request.seeds} seeds, 95 % t-intervals over seeds; δ = 1/{request.evaluations}, F = 1, q̄ = 2, C̃ = 2, "
        "λ = ξ² = 1e-4, standardised features.",
        "Seconds are those of the strategy (choices and updates, wall clock); evaluations are look-ups.",
        "Batches are counted without that of the first, random arm; the dictionary is that after the last refit.",
    )


_SOURCE = "BBKB, section 5, figures 1 and 2, appendix D.1"
ABALONE = Experiment(
    _SOURCE, "regret ratio and time on Abalone, 4177 arms", METHODS, 10_000, partial(run, ("abalone",))
)
CADATA = Experiment(
    _SOURCE, "regret ratio and time on California housing, 20640 arms", METHODS, 10_000, partial(run, ("cadata",))
)
REGRESSION = Experiment(
    _SOURCE, "abalone and cadata in one figure, side by side", METHODS, 10_000, partial(run, ("abalone", "cadata"))
)
