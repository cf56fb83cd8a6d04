"""Salgia et al. 2021, section 5, figure 4: Branin's and Rosenbrock's function on [0, 1]², noise of
variance 0.01.

Arms are the points of a 100 × 100 grid; regret refers to the maximum over the whole square. As in
the authors' released code, R is the standard deviation of the noise, and the first bracket of
Rosenbrock's function has u²; the paper prints R = 0.01 and u.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np

from benchmarks.papers.campaigns import Comparison, Method, Runs, Tree, run_all
from benchmarks.papers.experiment import Experiment, Request
from benchmarks.papers.findings import Cell, Findings, Interval, Table
from benchmarks.papers.salgia_2021 import LABELS, METHODS, method, regret_figure
from objectives.datasets import DataSource
from objectives.objective import Evaluation, Parameters, Report
from objectives.parameters import Range, Space

NOISE_STD = 0.1
GRID = 10_000
HORIZON = 2000  # samples of GP-ThreDS; figure 4c has the times of 1000 samples of each method
OTHERS = 1000  # samples of the paper's other methods


@dataclass(frozen=True, slots=True)
class Rosenbrock:
    """f(x, y) = 10 − 100 (v − u²)² − (1 − u)², u = 0.3x + 0.8, v = 0.3y + 0.8, as in the authors'
    code.

    The paper (appendix D.1) prints u instead of u², which is `exponent` 1. The maximum of both is
    10, at x = y = 2/3. Noise N(0, `noise_std`²) is added.
    """

    noise_std: float = NOISE_STD
    exponent: int = 2

    def load(self, source: DataSource) -> Self:
        """The objective itself."""
        return self

    def default_space(self) -> Space:
        """x and y in [0, 1]."""
        return {"x": Range(0.0, 1.0), "y": Range(0.0, 1.0)}

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """f(x, y) plus noise drawn from `seed`; the metric `noise_free` is f."""
        u, v = (0.3 * parameters[name] + 0.8 for name in ("x", "y"))
        value = 10.0 - 100.0 * (v - u**self.exponent) ** 2 - (1.0 - u) ** 2
        noise = self.noise_std * float(np.random.default_rng(seed).standard_normal())
        return Evaluation(value + noise, {"noise_free": value})

    def optimum(self, maximize: bool) -> float | None:
        """10; None for the minimum, which is not used."""
        return 10.0 if maximize else None


@dataclass(frozen=True)
class Setting:
    """One function: its objective, the norm bound B, options of GP-ThreDS, and the authors'
    released results.

    `reported`, by method: the average regret over the whole run, and its seconds.
    """

    name: str
    title: str
    objective: Tree
    norm_bound: float
    threds: Tree
    reported: Mapping[str, tuple[float, float]]


BRANIN = Setting(
    "branin",
    "Branin",
    {"name": "branin", "options": {"noise_std": NOISE_STD}},
    0.5,
    {"low": 0.5, "high": 1.2, "pruning_constant": 0.4, "threshold_constant": 0.28},
    {
        "gp_threds": (0.045, 13.8),
        "igp_ucb": (0.020, 709),
        "adaptive_discretization": (0.079, 109),
        "expected_improvement": (0.041, 1057),
        "probability_of_improvement": (0.035, 1036),
    },
)
_ROSENBROCK = f"{Rosenbrock.__module__}:{Rosenbrock.__qualname__}"
ROSENBROCK = Setting(
    "rosenbrock",
    "Rosenbrock",
    {"name": _ROSENBROCK},
    2.0,
    {"low": 3.0, "high": 12.0, "pruning_constant": 0.4, "threshold_constant": 3.6, "grid_points": 441},
    {
        "gp_threds": (0.047, 17),
        "igp_ucb": (0.019, 709),
        "adaptive_discretization": (0.068, 74),
        "expected_improvement": (0.024, 1068),
        "probability_of_improvement": (0.020, 1047),
    },
)


def comparison(setting: Setting, request: Request) -> Comparison:
    """The methods of the request on `setting`; all but GP-ThreDS and BBKB stop after `OTHERS`
    samples (paper)."""
    problem = {"objective": setting.objective, "candidates": {"size": GRID, "sampler": "grid"}}
    return Comparison(setting.name, problem, [_method(setting, name) for name in request.methods])


def _method(setting: Setting, name: str) -> Method:
    model = {"kernel": {"name": "rbf", "lengthscale": 0.2}, "regularization": 0.01}
    width = {"norm_bound": setting.norm_bound, "noise_scale": NOISE_STD, "delta": 1e-3}
    threds = {"c": 0.2, "max_local_pulls": 50, "first": "centre", **setting.threds}
    stop = OTHERS if name in METHODS[1:5] else None
    return method(name, model, width, threds, OTHERS, stop)


def run(settings: Sequence[Setting], request: Request) -> Findings:
    """Reproduce figure 4 for each of `settings`: average regret against samples and time, and its
    times (4c)."""
    results = [run_all(comparison(setting, request), request) for setting in settings]
    tables = [_table(setting, runs) for setting, runs in zip(settings, results, strict=True)]
    figures = [
        regret_figure(f"threds-{setting.name}", f"GP-ThreDS, figure 4: {setting.title}", runs)
        for setting, runs in zip(settings, results, strict=True)
    ]
    notes = (
        f"{request.seeds} seeds; SE kernel 0.2, λ = 0.01, R = 0.1, δ = 1e-3, B = {settings[0].norm_bound:g}; "
        "a grid of 100 × 100 arms for all methods.",
        "Times are those of the strategy (choices and updates); evaluations take no time.",
    )
    return Findings(tables, figures, notes)


def _table(setting: Setting, results: Runs) -> Table:
    columns = ("method", "samples", "average regret", "paper", "last 100", "strategy's s", "paper's s", "s for 1000")
    title = f"{setting.title}: average regret and time, ours beside the authors' released results"
    return Table(
        f"threds-{setting.name}", title, columns, [_row(setting, method_name, results) for method_name in results]
    )


def _row(setting: Setting, method_name: str, results: Runs) -> tuple[Cell, ...]:
    runs, (regret, seconds) = results[method_name], setting.reported.get(method_name, ("–", "–"))
    timed = min(OTHERS, len(runs[0]))
    return (
        LABELS[method_name],
        len(runs[0]),
        Interval.of([run.average_regret[-1] for run in runs]),
        regret,
        Interval.of([run.optimum - float(run.values[-100:].mean()) for run in runs]),
        Interval.of([run.clock[-1] for run in runs]),
        seconds,
        Interval.of([run.clock[timed - 1] for run in runs]),
    )


_SOURCE = "GP-ThreDS, section 5 and appendix D.1, figures 4 to 6"
THREDS_BRANIN = Experiment(_SOURCE, "average regret and time on Branin", METHODS, HORIZON, partial(run, (BRANIN,)))
THREDS_ROSENBROCK = Experiment(
    _SOURCE, "average regret and time on Rosenbrock", METHODS, HORIZON, partial(run, (ROSENBROCK,))
)
