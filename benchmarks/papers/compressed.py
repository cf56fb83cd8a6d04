"""Compressed GP bandits (Bedi et al. 2020 and its long version with Sadler, section 4) and other
methods.

The papers give clock times (the long version, tables 2 to 4), but no numbers for regret and model
order, no horizon and no domains.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.papers.bedi_2020 import ACQUISITIONS, KINDS, METHODS, NOISE_VARIANCE, OTHERS, label, method
from benchmarks.papers.campaigns import Comparison, Runs, Tree, run_all
from benchmarks.papers.experiment import Experiment, Request
from benchmarks.papers.findings import Cell, Curve, Figure, Findings, Floats, Interval, Panel, Table
from benchmarks.papers.measured import Measured
from benchmarks.papers.rosenbrock import Rosenbrock
from objectives.datasets import DataSource
from objectives.names import find_objective

POINTS = 50  # points of a curve; a figure has 27 curves
MATCHED = float(np.sqrt(NOISE_VARIANCE))  # variance of the noise that the model assumes

Clock = Callable[[Measured], Floats]


@dataclass(frozen=True)
class Setting:
    """A problem: the section `objective` (default direction: maximize), the number of candidates
    and their sampler."""

    name: str
    title: str
    objective: Tree
    size: int
    sampler: str
    workers: Tree | None = None

    def comparison(self, request: Request) -> Comparison:
        """The methods of the request on this problem."""
        space = find_objective(self.objective["name"])().default_space()
        if space is None:
            raise ValueError(f"the objective of {self.name} must have a space")
        problem = {
            "objective": self.objective,
            "candidates": {"size": self.size, "sampler": self.sampler},
            **({} if self.workers is None else {"workers": self.workers}),
        }
        return Comparison(self.name, problem, [method(name, space, request.evaluations) for name in request.methods])


@dataclass(frozen=True)
class Published:
    """The numbers of a table and a figure of Bedi, Sadler et al., and the table's times in
    `unit`."""

    table: int
    figure: int
    unit: str
    times: Mapping[str, tuple[float, float, float]] = field(repr=False)  # uncompressed, compressed, BKB

    def time(self, name: str) -> float | None:
        """The published time of the method `name` (BKB: that with UCB); None when there is none."""
        if name in OTHERS:
            return self.times["ucb"][2] if name == "bkb" else None
        kind, acquisition = name.split("_")
        return self.times[acquisition][0 if kind == "dense" else 1]

    @property
    def with_training(self) -> bool:
        """Whether the times are hours, most of them training."""
        return self.unit == "h"

    def clock(self, run: Measured) -> Floats:
        """The seconds (T,) after t pulls that are compared with these times."""
        return run.total_clock if self.with_training else run.clock


EXAMPLE_TIMES = Published(
    2, 1, "s", {"ucb": (6.756, 5.335, 9.56), "ei": (7.594, 4.133, 10.578), "mpi": (5.199, 3.864, 9.429)}
)
ROSENBROCK_TIMES = Published(
    3, 2, "s", {"ucb": (2.412, 1.905, 3.143), "ei": (2.604, 2.246, 3.801), "mpi": (2.533, 2.186, 3.237)}
)
MNIST_TIMES = Published(
    4, 3, "h", {"ucb": (0.994, 0.282, 1.817), "ei": (0.992, 0.266, 2.072), "mpi": (0.993, 0.227, 1.840)}
)


def run_example(request: Request) -> Findings:
    """Bedi, Sadler et al., figure 1 and table 2, with the noise that the model assumes and with
    that of 2020."""
    noises = {"sine": (MATCHED, "noise variance 0.001"), "sine-unit-noise": (1.0, "noise variance 1")}
    settings = [
        Setting(name, f"sin x + cos x + 0.1x, {shown}", {"name": "sine", "options": {"noise_std": std}}, 1001, "grid")
        for name, (std, shown) in noises.items()
    ]
    return _findings(settings, EXAMPLE_TIMES, request)


def run_rosenbrock(request: Request) -> Findings:
    """Bedi, Sadler et al., figure 2 and table 3."""
    objective = {
        "name": f"{Rosenbrock.__module__}:{Rosenbrock.__qualname__}",
        "options": {"noise_std": MATCHED},
        "direction": "minimize",
    }
    setting = Setting("rosenbrock", "Rosenbrock, a = 1, b = 10", objective, 41 * 41, "grid")
    return _findings([setting], ROSENBROCK_TIMES, request)


def run_mnist(request: Request) -> Findings:
    """Bedi, Sadler et al., figure 3 and table 4. Without MNIST it trains on scikit-learn's digits,
    and notes it."""
    is_there = DataSource.find(request.data).file("mnist/mnist.npz") is not None
    if is_there:  # one epoch over 5000 images, and the accuracy on 10 000, take a tenth of a second
        shown, options = "MNIST", {"dataset": "mnist", "epochs": 1, "train_size": 5000, "validation_fraction": 1 / 6}
    else:
        shown, options = "scikit-learn's digits (MNIST is not available)", {"dataset": "digits", "epochs": 1}
    objective = {"name": "mnist_logistic_regression", "options": options}
    workers = {"executor": "inline", "count": 1}
    setting = Setting("mnist", f"logistic regression on {shown}", objective, 4096, "sobol", workers)
    return _findings([setting], MNIST_TIMES, request)


def _findings(settings: Sequence[Setting], published: Published, request: Request) -> Findings:
    results = [(setting, _set_optimum(run_all(setting.comparison(request), request))) for setting in settings]
    return Findings(
        [_table(setting, runs, published) for setting, runs in results],
        [_figure(setting, runs, published) for setting, runs in results],
        _notes(published, request),
    )


def _set_optimum(results: Runs) -> Runs:
    """The runs with an optimum: the largest value of all runs when the objective has none."""
    best = max(float(np.nanmax(run.values)) for runs in results.values() for run in runs)
    return {
        name: tuple(run if np.isfinite(run.optimum) else replace(run, optimum=best) for run in runs)
        for name, runs in results.items()
    }


def model_order(name: str, run: Measured) -> Floats:
    """M_t (T,), the number of points that define the posterior of the method `name` after t pulls.

    Without compression, it is the number of pulls. The absolute test does not store an arm twice:
    after one pull its variance is below σ², far below the threshold of the test.
    """
    if name.startswith("dense"):
        return np.arange(1.0, len(run) + 1)
    return run.dictionary_sizes.astype(np.float64)


def _table(setting: Setting, runs: Runs, published: Published) -> Table:
    columns = ("method", "evaluations", "average regret", "simple regret", "model order", "arms in it", "strategy's s")
    timed = ("s with training",) if published.with_training else ()
    their_title = f"Bedi, Sadler et al., table {published.table}: {published.unit}"
    compared = ("÷ uncompressed", their_title, "its ÷ uncompressed")
    rows = [_row(name, runs, published) for name in runs]
    return Table(f"compressed-{setting.name}", setting.title, (*columns, *timed, *compared), rows)


def _row(name: str, results: Runs, published: Published) -> tuple[Cell, ...]:
    runs = results[name]
    dense = "dense_ucb" if name in OTHERS else f"dense_{name.split('_')[1]}"
    their_time, uncompressed = published.time(name), published.time(dense)
    return (
        label(name),
        _count([len(run) for run in runs]),
        Interval.of([run.average_regret[-1] for run in runs]),
        Interval.of([run.simple_regret[-1] for run in runs]),
        _count([int(model_order(name, run)[-1]) for run in runs]),
        _count([int(run.dictionary_sizes[-1]) for run in runs]),
        Interval.of([run.clock[-1] for run in runs]),
        *((Interval.of([run.total_clock[-1] for run in runs]),) if published.with_training else ()),
        _share(runs, results.get(dense, ()), published),
        "–" if their_time is None else their_time,
        "–" if their_time is None or uncompressed is None else their_time / uncompressed,
    )


def _count(samples: Sequence[int]) -> Cell:
    """The number itself when all seeds have the same one, else an interval."""
    return samples[0] if len(set(samples)) == 1 else Interval.of(samples)


def _share(runs: Sequence[Measured], dense: Sequence[Measured], published: Published) -> Cell:
    """The runs' times divided by those of uncompressed runs of the same seed; – when there are
    none."""
    if not dense or runs[0] is dense[0]:
        return 1 if dense else "–"
    return Interval.of(
        [published.clock(run)[-1] / published.clock(dense_run)[-1] for run, dense_run in zip(runs, dense, strict=True)]
    )


def _figure(setting: Setting, results: Runs, published: Published) -> Figure:
    """The figure of the paper: one column for each acquisition; regret by step, regret by time,
    model order by step.

    Runs that skip are not drawn: at each step they choose what compressed runs choose, without the
    evaluations.
    """
    shown = [_shown_runs(acquisition, results) for acquisition in ACQUISITIONS]
    seconds = "seconds, training included" if published.with_training else "strategy's seconds"
    regret = [
        Panel(title, "t", "average regret", _curves(runs, lambda _, run: run.average_regret), y_scale="log")
        for title, runs in zip(ACQUISITIONS.values(), shown, strict=True)
    ]
    time = [
        Panel(title, seconds, "average regret", _by_time(runs, published.clock), y_scale="log")
        for title, runs in zip(ACQUISITIONS.values(), shown, strict=True)
    ]
    order = [
        Panel(title, "t", "model order", _curves(runs, model_order), y_scale="log")
        for title, runs in zip(ACQUISITIONS.values(), shown, strict=True)
    ]
    title = f"Compressed GP bandits (Bedi, Sadler et al.), figure {published.figure}: {setting.title}"
    return Figure(f"compressed-{setting.name}", title, [*regret, *time, *order], columns=3)


def _shown_runs(acquisition: str, runs: Runs) -> Runs:
    names = [f"{kind}_{acquisition}" for kind in KINDS if kind != "skipping"]
    return {name: runs[name] for name in (*names, *OTHERS) if name in runs}


def _curves(results: Runs, of: Callable[[str, Measured], Floats]) -> list[Curve]:
    return [
        Curve.over_seeds(_legend(name), np.arange(1.0, len(runs[0]) + 1), [of(name, run) for run in runs], POINTS)
        for name, runs in results.items()
    ]


def _by_time(results: Runs, clock: Clock) -> list[Curve]:
    """Average regret against the mean of the seeds' times."""
    curves = []
    for name, runs in results.items():
        times = np.mean([clock(run) for run in runs], axis=0)
        curves.append(Curve.over_seeds(_legend(name), times, [run.average_regret for run in runs], POINTS))
    return curves


def _legend(name: str) -> str:
    return OTHERS[name] if name in OTHERS else KINDS[name.split("_")[0]]


def _notes(published: Published, request: Request) -> tuple[str, ...]:
    ending = "strategy and training" if published.with_training else "the strategy alone"
    trained = "On MNIST: one epoch over 5000 images, accuracy on 10 000; f* is the largest accuracy of all runs."
    return (
        f"{request.seeds} seeds, 95 % t-intervals over seeds; T = {request.evaluations}: the papers print no horizon. "
        "Lengthscale 1 on the unscaled domain, a decade being 1 on a logarithmic scale, σ² = 0.001, ε = 1e-4 (absolute "
        "test), δ = 0.1, 2^d initial points, the same for all methods of a seed; candidates are a finite set.",
        f"Times compared are those of {ending}; the last column is the ratio of the paper's own times.",
        "Skipping runs (the long version's Algorithm 1) end when nothing informative is left: their average regret is "
        "over the evaluations made. But for a later evaluation's noise they choose what the compressed run chooses.",
        "BKB is ours, with its own upper bound; the papers also run it with EI and MPI.",
        *((trained,) if published.with_training else ()),
    )


_SOURCE = "compressed GP bandits, section 4"
EXAMPLE = Experiment(
    f"{_SOURCE}.1, figure 1, table 2",
    "compressed, uncompressed, BKB on sin x + cos x + 0.1x",
    METHODS,
    300,
    run_example,
)
ROSENBROCK = Experiment(
    f"{_SOURCE}.2, figure 2, table 3",
    "compressed, uncompressed, BKB on Rosenbrock's function",
    METHODS,
    300,
    run_rosenbrock,
)
MNIST = Experiment(
    f"{_SOURCE}.3, figure 3, table 4",
    "compressed, uncompressed, BKB tuning logistic regression on MNIST, really trained",
    METHODS,
    200,
    run_mnist,
)
