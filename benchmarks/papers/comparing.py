"""The table of a comparison: regret, batches, dictionary and time of each method."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.papers.campaigns import Comparison, Runs, run_all
from benchmarks.papers.experiment import Request
from benchmarks.papers.measured import Measured
from benchmarks.tables import Cell, Interval, Table

UNIFORM = "uniform"  # the method whose regret is the denominator of the regret ratios
COLUMNS = (
    *("method", "pulls", "regret ratio", "average regret", "simple regret", "batches"),
    *("largest batch", "dictionary", "strategy's s", "s with training", "paper"),
)


def compare(
    comparisons: Callable[[Request], Sequence[Comparison]],
) -> Callable[[Request], list[Table]]:
    """Make the function `run` of an experiment that consists of comparisons."""

    def run(request: Request) -> list[Table]:
        return [table(one, run_all(one, request)) for one in comparisons(request)]

    return run


def table(comparison: Comparison, results: Runs) -> Table:
    """Make the table of a comparison; intervals are over seeds."""
    runs = with_optimum(comparison, results)
    rows = [_row(comparison, method.name, runs) for method in comparison.methods]
    return Table(comparison.name, comparison.title, COLUMNS, rows)


def with_optimum(comparison: Comparison, results: Runs) -> Runs:
    """Set the comparison's optimum, or the largest value of all runs if the optimum is unknown."""
    best = max(float(np.nanmax(run.values)) for runs in results.values() for run in runs)

    def optimum(run: Measured) -> float:
        if comparison.optimum is not None:
            return comparison.optimum
        return run.optimum if np.isfinite(run.optimum) else best

    return {name: tuple(replace(run, optimum=optimum(run)) for run in runs) for name, runs in results.items()}


def regret_ratios(runs: Sequence[Measured], uniform: Sequence[Measured]) -> list[float]:
    """Divide the regret of each run by that of the uniform policy with the same seed."""
    pairs = zip(runs, uniform, strict=True)
    return [float(run.regret[-1] / other.regret[len(run) - 1]) for run, other in pairs]


def _row(comparison: Comparison, name: str, results: Runs) -> tuple[Cell, ...]:
    runs = results[name]
    method = next(method for method in comparison.methods if method.name == name)
    uniform = results.get(UNIFORM)
    return (
        method.label,
        len(runs[0]),
        "–" if uniform is None else Interval.of(regret_ratios(runs, uniform)),
        Interval.of([run.regret[-1] / len(run) for run in runs]),
        Interval.of([run.optimum - float(np.nanmax(run.values)) for run in runs]),
        Interval.of([run.batch_count for run in runs]),
        Interval.of([int(np.bincount(run.batches).max()) for run in runs]),
        Interval.of([int(run.dictionary_sizes[-1]) for run in runs]),
        Interval.of([float(run.strategy_seconds.sum()) for run in runs]),
        Interval.of([run.total_seconds for run in runs]),
        comparison.published.get(name, "–"),
    )
