"""Salgia et al. 2021, appendix D.3, figure 7: five hyper-parameters of a convolutional network on
MNIST.

With real training (`threds_cnn`; `threds_cnn_short` trains for one epoch instead of three) a run of
200 samples takes more than half an hour on one core, so it is meant for one seed: `--seeds 1`. An
interrupted run continues.

For repetitions there is a smaller problem (`threds_cnn_twin`), a table of recorded trainings:

    python -m benchmarks.tabulate_cnn FOLDER
    python -m benchmarks.papers threds_cnn_twin --data FOLDER
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.papers.campaigns import Comparison, Method, Runs, Tree, run_all
from benchmarks.papers.experiment import Experiment, Request
from benchmarks.papers.findings import Cell, Findings, Interval, Table
from benchmarks.papers.salgia_2021 import LABELS, METHODS, method, regret_figure
from objectives.datasets import DataSource
from objectives.objective import ObjectiveError
from objectives.parameters import Space
from objectives.tabular import Table as TrainingTable
from objectives.tabular import table_objective

EPOCHS = 3
OPTIMUM = 0.99  # f*, as in the paper
TWIN_TABLE = "mnist_cnn.csv"
AT = (50, 200)  # numbers of samples for which the authors' average regret is known

# average regret in the authors' released results, by the number of samples
REPORTED: Mapping[int, Mapping[str, float]] = {
    50: {"igp_ucb": 0.083, "expected_improvement": 0.346, "probability_of_improvement": 0.316},
    200: {"gp_threds": 0.077, "adaptive_discretization": 0.203},
}

_MODEL: Tree = {"kernel": {"name": "matern52", "lengthscale": 0.2}, "regularization": 1e-4}
_NOISE_STD = 0.01  # standard deviation of the noise that is added to an accuracy; the paper prints R = 1e-4
_WIDTH: Tree = {"norm_bound": 0.5, "noise_scale": _NOISE_STD, "delta": 0.025}
_THREDS: Tree = {
    "delta": 0.02,
    "low": 0.3,
    "high": 1.4,
    "pruning_constant": 0.2,
    "threshold_constant": 0.11,
    "max_local_pulls": 8,
    "grid_points": 1536,
}
_WHOLE: Tree = {"initial_points": 23_808, "final_points": 23_808}  # IGP-UCB computes all settings


def methods(request: Request) -> list[Method]:
    """The methods of the request with the settings of appendix D.3 and of the authors' released
    code."""
    return [_method(name, request.evaluations) for name in request.methods]


def _method(name: str, horizon: int) -> Method:
    strategy = method(name, _MODEL, _WIDTH, _THREDS, horizon)
    return replace(strategy, strategy={**strategy.strategy_of(0), **_WHOLE}) if name == "igp_ucb" else strategy


def training_comparison(epochs: int, request: Request) -> Comparison:
    """The methods of the request on all 23 808 settings; a setting is trained when it is chosen."""
    problem = {
        "objective": {"name": "mnist_cnn", "options": {"epochs": epochs, "dataset": "mnist"}},
        "candidates": {"size": None},
        "workers": {"executor": "inline", "count": 1},
    }
    return Comparison("mnist", problem, methods(request))


def run(epochs: int, request: Request) -> Findings:
    """Average regret against samples and against time, with real training on MNIST."""
    runs = set_optimum(run_all(training_comparison(epochs, request), request))
    title = f"CNN on MNIST, {epochs} epoch{'s' if epochs > 1 else ''} of training, f* = {OPTIMUM}"
    notes = (
        f"{request.seeds} seed{'s' if request.seeds > 1 else ''}; {epochs} of the paper's {EPOCHS} epochs. "
        f"Average regret is {OPTIMUM} − mean test accuracy.",
    )
    return findings("threds-cnn", title, runs, notes)


def set_optimum(results: Runs) -> Runs:
    """The runs with f* of the paper, because the largest accuracy is unknown."""
    return {name: tuple(replace(run, optimum=OPTIMUM) for run in runs) for name, runs in results.items()}


def findings(name: str, title: str, results: Runs, notes: tuple[str, ...]) -> Findings:
    """The table with the authors' numbers, and the curves of figure 7."""
    return Findings(
        [_table(name, title, results)], [regret_figure(name, f"GP-ThreDS, figure 7: {title}", results)], notes
    )


def _table(name: str, title: str, results: Runs) -> Table:
    columns: list[str] = ["method"]
    for t in AT:
        columns += [f"average regret at {t}", f"paper at {t}", f"strategy's s for {t}"]
    return Table(name, title, (*columns, "simple regret"), [_row(method_name, results) for method_name in results])


def _row(method_name: str, results: Runs) -> tuple[Cell, ...]:
    cells: list[Cell] = [LABELS[method_name]]
    for t in AT:
        reached = [run for run in results[method_name] if len(run) >= t]
        average = Interval.of([run.average_regret[t - 1] for run in reached]) if reached else "–"
        seconds = Interval.of([run.clock[t - 1] for run in reached]) if reached else "–"
        cells += [average, REPORTED[t].get(method_name, "–"), seconds]
    return (*cells, Interval.of([run.simple_regret[-1] for run in results[method_name]]))


@dataclass(frozen=True, slots=True)
class Twin:
    """The table of the smaller problem as an objective: accuracy plus N(0, `noise_std`²), by
    default the paper's noise.

    Without noise, methods that draw no random numbers would make the same choices with each seed.
    """

    noise_std: float = _NOISE_STD

    def load(self, source: DataSource) -> TrainingTable:
        """The table `mnist_cnn.csv` of the data folder. Raises ObjectiveError when it is
        missing."""
        path = source.file(TWIN_TABLE)
        if path is None:
            raise ObjectiveError(
                f"the twin's table {TWIN_TABLE} must be in the data folder ({source.folder or 'none is given'}); "
                "write it by `python -m benchmarks.tabulate_cnn FOLDER` and give FOLDER by --data"
            )
        return table_objective(path, "accuracy", noise_std=self.noise_std)

    def default_space(self) -> Space | None:
        """None: the table has its own candidates."""
        return None


def run_twin(request: Request) -> Findings:
    """The experiment on the smaller table; f* is its largest accuracy."""
    problem = {"objective": {"name": f"{Twin.__module__}:{Twin.__qualname__}"}}
    results = run_all(Comparison("twin", problem, methods(request)), request)
    notes = (
        f"{request.seeds} seeds. The twin: 1152 of the 23808 settings, each trained once (5 epochs on 1000 of "
        "scikit-learn's digits unless tabulated otherwise); rewards are the table's accuracy plus N(0, 0.01²).",
    )
    return findings("threds-cnn-twin", "the tabulated twin, f* = the table's largest accuracy", results, notes)


_SOURCE = "GP-ThreDS, appendix D.3, figure 7"
CNN = Experiment(
    _SOURCE, "tuning a convolutional network on MNIST, real training", METHODS, 200, partial(run, EPOCHS), METHODS[:1]
)
CNN_SHORT = Experiment(_SOURCE, "the same with one epoch of training", METHODS, 200, partial(run, 1), METHODS[:1])
CNN_TWIN = Experiment(
    _SOURCE, "the same on a smaller table of recorded trainings, for repetitions", METHODS, 200, run_twin
)
